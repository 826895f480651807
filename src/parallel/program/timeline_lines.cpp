#include "parallel/program/timeline_lines.hpp"

#include <algorithm>

namespace trainstone::Impl {

void TimelineLines::call(TimelinePlayer& player, TimedWork& work) {
  Line& line = line_of(player, work.collectives[work.next].communicator);
  std::size_t const number = line.called[&player]++;
  if (number == line.open.size()) line.open.emplace_back();
  Line::Meeting& meeting = line.open[number];
  meeting.came.emplace_back(&player, &work);
  meeting.latest = std::max(meeting.latest, player.clock);
  meeting.call = std::max(meeting.call, ++player.calls);
  if (meeting.came.size() < line.classes.size()) return;
  for (auto const& [one, started] : meeting.came) started->called = meeting.latest;
  if (std::optional<Index> const turn = work.collectives[work.next].number) return m_turns.push_back({*turn, &line});
  Ready const ready{meeting.latest, meeting.call, &line};
  m_ready.insert(std::upper_bound(m_ready.begin(), m_ready.end(), ready), ready);
}

bool TimelineLines::begin_one_before(Nanoseconds time) {
  auto const turn = next_turn();
  Nanoseconds const of_turn = turn == m_turns.end() ? never : earliest_begin(*turn->line);
  Nanoseconds const of_ready = m_ready.empty() ? never : m_ready.front().time;
  if (std::min(of_turn, of_ready) >= time) return false;
  Line* const line = of_ready <= of_turn ? m_ready.front().line : turn->line;
  if (of_ready <= of_turn)
    m_ready.pop_front();
  else
    m_turns.erase(turn);
  begin(*line);
  return true;
}

/// Of the collectives with a number that can begin first, the one with the smallest number.
std::vector<TimelineLines::Turn>::iterator TimelineLines::next_turn() {
  return std::ranges::min_element(m_turns, {},
                                  [](Turn const& one) { return std::pair(earliest_begin(*one.line), one.number); });
}

/// When the wire of its next collective and the ports of all its ranks are free.
Nanoseconds TimelineLines::earliest_begin(Line const& line) {
  Line::Meeting const& meeting = line.open.front();
  Nanoseconds begin = std::max(meeting.latest, line.free), wire = 0;
  for (auto const& [player, work] : meeting.came) wire = std::max(wire, work->collectives[work->next].wire);
  for (auto const& [player, work] : meeting.came)
    if (wire > 0) begin = std::max(begin, player->port_free(work->collectives[work->next].port));
  return begin;
}

/// All ranks have called the first collective of the line that has not begun.
void TimelineLines::begin(Line& line) {
  Nanoseconds const begin = earliest_begin(line);
  Line::Meeting const meeting = std::move(line.open.front());
  line.open.pop_front();
  for (auto& [player, calls] : line.called) --calls;
  Nanoseconds wire = 0;
  for (auto const& [player, work] : meeting.came) wire = std::max(wire, work->collectives[work->next].wire);
  for (auto const& [player, work] : meeting.came) {
    player->arrives(*work, begin + wire);
    if (wire > 0) player->use_port(work->collectives[work->next].port, begin + wire);
  }
  line.free = begin + wire;
}

/// The classes that meet there, ascending.
std::vector<std::size_t> TimelineLines::classes_of(TimelinePlayer const& player,
                                                   CommunicatorId const& communicator) const {
  auto const& [axis, stages, channel, is_file] = communicator;
  std::vector<std::size_t> classes;
  if (is_file) return {number_of(player)};
  if (axis) classes = (*m_classes)[number_of(player)].lines[static_cast<std::size_t>(*axis)];
  for (std::size_t i = 0; !axis && i < m_players->size(); ++i) classes.push_back(i);
  if (stages)
    std::erase_if(classes, [&, pair = *stages](std::size_t one) {
      Rank const stage = (*m_classes)[one].stage;
      return stage != pair.lower && stage != pair.upper;
    });
  return classes;
}

TimelineLines::Line& TimelineLines::line_of(TimelinePlayer const& player, CommunicatorId const& communicator) {
  std::vector<std::size_t> const classes = classes_of(player, communicator);
  auto const& [axis, stages, channel, is_file] = communicator;
  LineName const name{is_file ? -2
                      : axis  ? static_cast<int>(*axis)
                              : -1,
                      stages ? stages->lower : -1, stages ? stages->upper : -1, channel,
                      classes.empty() ? number_of(player) : classes.front()};
  auto const [found, is_new] = m_lines.try_emplace(name);
  if (is_new) {
    found->second.classes = classes;
    for (std::size_t const one : classes) found->second.called[&(*m_players)[one]] = 0;
  }
  return found->second;
}

void TimelineLines::append_state(std::vector<Index>& state, Nanoseconds first, Nanoseconds origin) const {
  for (auto const& [name, line] : m_lines) {
    state.push_back(std::max(line.free, first) - origin);
    for (auto const& [player, calls] : line.called) state.push_back(static_cast<Index>(calls));
    for (Line::Meeting const& meeting : line.open) state.push_back(meeting.latest - origin);
  }
}

void TimelineLines::shift(Nanoseconds time) {
  for (auto& [name, line] : m_lines) {
    line.free += time;
    for (Line::Meeting& meeting : line.open) meeting.latest += time;
  }
  for (Ready& ready : m_ready) ready.time += time;
}

} // namespace trainstone::Impl
