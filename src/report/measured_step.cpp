#include "report/measured_step.hpp"

#include "result/json_file.hpp"

#include <algorithm>
#include <set>
#include <utility>

namespace trainstone {

namespace {

struct Event {
  std::string name;
  double begin = 0; ///< us since the recording began
  double length = 0;
};

/// The events of a rank that have one of these names, by their begin.
std::vector<Event> read_events(std::string const& path, Rank rank, std::set<std::string> const& names) {
  JsonFile const document = JsonFile::read(path, "; a run with trace.file writes one");
  JsonFile::Json const& all = document.at("");
  document.require(all.is_array(), "no trace: must be an array of events");
  std::vector<Event> events;
  for (JsonFile::Json const& one : all) {
    bool const complete = one.is_object() && one.contains("name") && one.value("ph", "") == "X" &&
                          one.value("pid", Rank{-1}) == rank && one.value("cat", "") == "compute";
    if (complete && names.contains(one.at("name").get<std::string>()))
      events.push_back({one.at("name").get<std::string>(), one.value("ts", 0.0), one.value("dur", 0.0)});
  }
  std::ranges::stable_sort(events, {}, &Event::begin);
  return events;
}

/// Whole steps: from one that begins like the program to the next one, with the last instruction in it. Validations
/// begin alike, but do not end so.
std::vector<std::pair<std::size_t, std::size_t>> find_steps(std::vector<Event> const& events, std::string const& first,
                                                            std::string const& last) {
  std::vector<std::pair<std::size_t, std::size_t>> steps;
  for (std::size_t begin = 0; begin < events.size(); ++begin) {
    if (events[begin].name != first) continue;
    std::size_t end = begin + 1;
    while (end < events.size() && events[end].name != first && events[end].name != last) ++end;
    if (end < events.size() && events[end].name == last) steps.emplace_back(begin, end);
  }
  return steps;
}

} // namespace

MeasuredStep read_measured_step(std::string const& path, ClassTimeline const& one, ShardPlan const& plan) {
  std::vector<std::string> texts;
  for (TimelineEntry const& entry : one.entries) texts.push_back(to_string(entry.instruction, plan));
  std::vector<Event> const events = read_events(path, one.ranks.first, {texts.begin(), texts.end()});
  std::string const& last = texts.back();
  auto steps = find_steps(events, texts.front(), last);
  if (steps.empty())
    throw InputError(fmt::format("{}: has no step of this program on rank {}: none from \"{}\" to \"{}\"", path,
                                 one.ranks.first, texts.front(), last));
  auto const length = [&](auto const& step) {
    return events[step.second].begin + events[step.second].length - events[step.first].begin;
  };
  auto const middle = steps.begin() + std::ssize(steps) / 2;
  std::ranges::nth_element(steps, middle, {}, length);
  MeasuredStep measured{1e-3 * length(*middle), {}};
  auto next = events.begin() + static_cast<std::ptrdiff_t>(middle->first);
  auto const end = events.begin() + static_cast<std::ptrdiff_t>(middle->second) + 1;
  double const begin = next->begin;
  for (std::string const& text : texts) {
    auto const found = std::find_if(next, end, [&](Event const& event) { return event.name == text; });
    if (found == end)
      throw InputError(fmt::format("{}: its steps are of another program: one has no \"{}\" on rank {}", path, text,
                                   one.ranks.first));
    measured.entries.push_back({1e-3 * (found->begin - begin), 1e-3 * found->length});
    next = found + 1;
  }
  return measured;
}

} // namespace trainstone
