#include "parallel/program/step_timeline.hpp"

#include "core/error.hpp"
#include "core/tournament.hpp"
#include "parallel/program/timeline_lines.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

namespace trainstone {

namespace {

using Impl::never;
using Impl::TimedWork;
using Impl::TimelineLines;
using Impl::TimelinePlace;
using Impl::TimelinePlayer;
using Impl::UnitTurn;

std::size_t at(Rank rank) { return static_cast<std::size_t>(rank); }
std::size_t at(Act act) { return static_cast<std::size_t>(act); }

/// Steps that are played in search of one that begins as the step before did. What a step leaves to the next one
/// (parameters that are published, a busy wire, the lead of a class) is used up in it, so that a few are enough.
/// Classes that no collective joins drift apart for ever: then the next step counts.
constexpr Index most_steps = 8;

class Playback {
public:
  Playback(std::vector<StepProgram> const& programs, std::vector<RankClass> const& classes, PriceOf const& price,
           Entries entries, Advances progress)
      : m_classes(&classes), m_price(&price), m_entries(entries), m_next(classes.size(), never) {
    for (RankClass const& one : classes)
      m_players.emplace_back(programs[at(one.program)], one, progress, m_players.size(), m_moved);
    m_lines.emplace(classes, m_players);
  }

  StepTimeline play() {
    while (m_final.size() < m_players.size()) {
      TimelinePlayer& next = next_player();
      Nanoseconds const time = m_next.smallest();
      TRAINSTONE_REQUIRE(time != never || m_lines->wait_for_begin(),
                         "the programs of {} classes of ranks wait for ever", m_players.size());
      // all that is called at one time is known before any of it begins
      if (m_lines->begin_one_before(time)) continue;
      next.move();
      go_on(next);
    }
    return result();
  }

private:
  /// The one whose next event is first. Only those that went on, or that others moved, are asked again.
  TimelinePlayer& next_player() {
    for (std::size_t const number : m_moved) m_next.set(number, m_players[number].next_event());
    m_moved.clear();
    return m_players[m_next.first()];
  }

  void go_on(TimelinePlayer& player) {
    if (player.works_on) return end_work(player);
    if (player.waits_for) {
      if (player.waits_for->is_done()) return end_wait(player);
      if (std::optional<std::size_t> const unit = player.next_unit()) return update(player, player.take_unit(*unit));
      return work_on(player, *player.next_arrival());
    }
    if (player.computes) return compute(player);
    Instruction const instruction = player.place.instruction();
    player.instruction_begin = player.clock;
    if (instruction.act == Act::wait) return begin_wait(player, instruction);
    if (player.was_done(instruction)) return end_instruction(player, instruction);
    InstructionPrice price = (*m_price)(number_of(player), instruction);
    player.result.compute += price.compute;
    player.computes = true;
    player.left = price.compute;
    player.then_starts = std::move(price.collectives);
  }

  /// Before its turn.
  void update(TimelinePlayer& player, UnitTurn const& unit) {
    Nanoseconds const compute = (*m_price)(number_of(player), unit.update).compute;
    player.result.compute += compute;
    player.clock += compute;
    InstructionPrice price = (*m_price)(number_of(player), unit.publish);
    if (TimedWork* const work = player.start(unit.publish, std::move(price.collectives))) m_lines->call(player, *work);
  }

  /// Until the end, or until a collective arrives: then its core's part comes in between.
  void compute(TimelinePlayer& player) {
    TimedWork* const work = player.next_interruption();
    Nanoseconds const until = work ? std::max<Nanoseconds>(0, work->arrival - player.clock) : never;
    if (until <= player.left) {
      player.left -= until;
      player.clock += until;
      return work_on(player, *work);
    }
    player.clock += player.left;
    player.computes = false;
    start_collectives(player, player.place.instruction());
  }

  void start_collectives(TimelinePlayer& player, Instruction const& instruction) {
    bool const waits = !only_starts(instruction.act) && !player.then_starts.empty();
    if (waits || only_starts(instruction.act))
      if (TimedWork* const work = player.start(instruction, std::exchange(player.then_starts, {})))
        m_lines->call(player, *work);
    if (waits)
      player.waits_for = player.find(instruction.act, instruction);
    else
      end_instruction(player, instruction);
  }

  /// The core's part of a collective, for which the rank may have to wait.
  void work_on(TimelinePlayer& player, TimedWork& work) {
    Nanoseconds const idle = std::max<Nanoseconds>(0, work.arrival - player.clock);
    Nanoseconds const core = work.collectives[work.next].core;
    if (player.waits_for) add_idle(player, idle);
    player.result.act[at(work.started.act)] += core;
    player.clock += idle + core;
    player.take(work);
    player.works_on = &work;
  }

  /// Until all ranks have called the collective that it waits for, a rank waits for them and not for messages.
  static void add_idle(TimelinePlayer& player, Nanoseconds idle) {
    TimedWork const& work = *player.waits_for;
    Nanoseconds const others =
        work.called == never ? idle : std::clamp<Nanoseconds>(work.called - player.clock, 0, idle);
    player.result.others += others;
    player.result.act[at(work.started.act)] += idle - others;
  }

  /// What follows is called then, and not before others have called what they call earlier.
  void end_work(TimelinePlayer& player) {
    TimedWork& work = *std::exchange(player.works_on, nullptr);
    player.end(work);
    if (!work.is_done()) return m_lines->call(player, work);
    if (records(player)) player.result.collectives.push_back({work.started, work.begin, player.clock});
    while (TimedWork* const queued = player.next_of_queue()) m_lines->call(player, *queued);
  }

  void begin_wait(TimelinePlayer& player, Instruction const& wait) {
    player.waits_for = player.find(wait.started, wait);
    if (player.waits_for) return;
    // nothing was updated before the first step, and nothing pushed
    bool const is_there = wait.started == Act::publish || (wait.started == Act::reduce && player.updates_units());
    TRAINSTONE_REQUIRE(is_there, "rank {} waits for act {} of subject {}, which it has not started",
                       player.result.ranks.first, to_string(wait.started), wait.subject);
    end_instruction(player, wait);
  }

  void end_wait(TimelinePlayer& player) {
    player.erase(*std::exchange(player.waits_for, nullptr));
    end_instruction(player, player.place.instruction());
  }

  void end_instruction(TimelinePlayer& player, Instruction const& instruction) {
    if (records(player)) player.result.entries.push_back({instruction, player.instruction_begin, player.clock});
    using enum TimelinePlace::Border;
    TimelinePlace::Border const border = player.place.advance();
    bool const leads = &player == &m_players.front();
    if (border == repetition && leads) skip_repetitions();
    if ((border == segment || border == step) && leads) m_state_of_repetition.clear();
    if (border == step && leads) look_for_steady_step();
    if (border == step) {
      player.begin_step();
      begin_step(player);
    }
  }

  /// A step that begins as the step before did takes as long.
  void look_for_steady_step() {
    std::vector<Index> const now = state();
    bool const is_steady = now == m_state_of_step || m_players.front().place.step() >= most_steps;
    if (is_steady && m_recorded < 0) m_recorded = m_players.front().place.step() + 1;
    m_state_of_step = now;
  }

  void begin_step(TimelinePlayer& player) {
    bool const leads = &player == &m_players.front();
    if (player.place.step() == m_recorded) {
      player.result = {.ranks = player.result.ranks};
      if (leads) m_begin = player.clock;
    } else if (m_recorded >= 0 && player.place.step() == m_recorded + 1) {
      if (leads) m_end = player.clock;
      m_final.emplace(number_of(player), std::move(player.result));
      player.result = {.ranks = (*m_classes)[number_of(player)]};
    }
  }

  bool records(TimelinePlayer const& player) const {
    return m_entries == Entries::yes && player.place.step() == m_recorded;
  }

  /// When a repetition has begun as the one before did, those that follow are like it, up to the last one.
  void skip_repetitions() {
    std::vector<Index> now = state();
    TimelinePlayer const& leader = m_players.front();
    if (now == m_state_of_repetition) {
      Index times = leader.place.times_left();
      for (TimelinePlayer const& player : m_players) times = std::min(times, player.place.times_left());
      Nanoseconds const one = leader.clock - m_repetition_begin;
      for (std::size_t i = 0; i < m_players.size(); ++i) add_repetitions(m_players[i], m_sums[i], times, one);
      m_lines->shift(times * one);
    }
    m_state_of_repetition = std::move(now);
    m_repetition_begin = leader.clock;
    m_sums.clear();
    for (TimelinePlayer const& player : m_players)
      m_sums.push_back({player.result.compute, player.result.others, player.result.act, player.result.entries.size()});
  }

  struct Sums {
    Nanoseconds compute, others;
    std::array<Nanoseconds, act_count> act;
    std::size_t entries;
  };

  static void add_repetitions(TimelinePlayer& player, Sums const& before, Index times, Nanoseconds one) {
    ClassTimeline& result = player.result;
    result.compute += times * (result.compute - before.compute);
    result.others += times * (result.others - before.others);
    for (std::size_t i = 0; i < act_count; ++i) result.act[i] += times * (result.act[i] - before.act[i]);
    for (std::size_t i = before.entries; i < result.entries.size(); ++i) result.entries[i].times += times;
    player.shift(times * one, times);
  }

  /// What comes depends on nothing else.
  std::vector<Index> state() const {
    std::vector<Index> state;
    TimelinePlayer const& leader = m_players.front();
    Nanoseconds first = leader.clock;
    for (TimelinePlayer const& player : m_players) {
      player.append_state(state, leader.clock);
      state.push_back(player.place.time() - leader.place.time());
      first = std::min(first, player.clock);
    }
    m_lines->append_state(state, first, leader.clock);
    return state;
  }

  StepTimeline result() {
    StepTimeline timeline{.step = m_end - m_begin, .classes = {}};
    for (auto& [number, one] : m_final) {
      for (auto* const entries : {&one.entries, &one.collectives})
        for (TimelineEntry& entry : *entries) {
          entry.begin -= m_begin;
          entry.end -= m_begin;
        }
      timeline.classes.push_back(std::move(one));
    }
    return timeline;
  }

  std::size_t number_of(TimelinePlayer const& player) const {
    return static_cast<std::size_t>(std::ranges::distance(m_players.data(), &player));
  }

  std::vector<RankClass> const* m_classes;
  PriceOf const* m_price;
  Entries m_entries;
  std::vector<TimelinePlayer> m_players; ///< the first one leads
  Tournament<Nanoseconds> m_next;        ///< by player: its next event
  std::vector<std::size_t> m_moved;      ///< players that are to be asked for it
  std::optional<TimelineLines> m_lines;
  std::vector<Index> m_state_of_step, m_state_of_repetition;
  Nanoseconds m_repetition_begin = 0;
  std::vector<Sums> m_sums; ///< when the last repetition began
  Index m_recorded = -1;    ///< the step that is the result
  Nanoseconds m_begin = 0, m_end = 0;
  std::map<std::size_t, ClassTimeline> m_final; ///< by class
};

} // namespace

Nanoseconds ClassTimeline::exposed() const { return std::accumulate(act.begin(), act.end(), Nanoseconds{0}); }

ClassTimeline const& StepTimeline::busiest() const {
  return *std::ranges::max_element(classes, {}, &ClassTimeline::compute);
}

Rank StepTimeline::stages() const {
  return 1 +
         std::ranges::max_element(classes, {}, [](ClassTimeline const& one) { return one.ranks.stage; })->ranks.stage;
}

StepTimeline play_step(std::vector<StepProgram> const& programs, std::vector<RankClass> const& classes,
                       PriceOf const& price, Entries entries, Advances progress) {
  TRAINSTONE_REQUIRE(!classes.empty(), "no ranks");
  for (RankClass const& one : classes)
    TRAINSTONE_REQUIRE(one.program < std::ssize(programs), "the class of rank {} has no program", one.first);
  return Playback(programs, classes, price, entries, progress).play();
}

} // namespace trainstone
