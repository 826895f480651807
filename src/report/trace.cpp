#include "report/trace.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <array>
#include <utility>

namespace trainstone {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::array lanes{std::pair{Lane::compute, "compute"}, std::pair{Lane::wait, "wait"},
                           std::pair{Lane::collective, "communication"}};

Json event_json(char const* phase, std::int64_t rank, TimelineEvent const& event, std::int64_t nanoseconds) {
  return {{"name", event.name}, {"cat", lanes.at(static_cast<std::size_t>(event.lane)).second},
          {"ph", phase},        {"ts", static_cast<double>(nanoseconds) / 1e3},
          {"pid", rank},        {"tid", static_cast<int>(event.lane)}};
}

Json name_json(char const* what, std::int64_t rank, Lane lane, std::string const& name) {
  return {{"name", what}, {"ph", "M"}, {"pid", rank}, {"tid", static_cast<int>(lane)}, {"args", {{"name", name}}}};
}

} // namespace

std::string trace_events(std::int64_t rank, std::span<TimelineEvent const> events) {
  std::vector<std::string> lines{name_json("process_name", rank, Lane::compute, fmt::format("rank {}", rank)).dump()};
  for (auto const& [lane, name] : lanes) lines.push_back(name_json("thread_name", rank, lane, name).dump());
  for (std::size_t i = 0; i < events.size(); ++i) {
    TimelineEvent const& event = events[i];
    if (event.lane != Lane::collective) {
      Json complete = event_json("X", rank, event, event.begin);
      complete["dur"] = static_cast<double>(event.end - event.begin) / 1e3;
      lines.push_back(complete.dump());
      continue;
    }
    // events of a lane nest: what overlaps is told apart by its number
    for (auto const& [phase, time] : {std::pair{"b", event.begin}, std::pair{"e", event.end}}) {
      Json edge = event_json(phase, rank, event, time);
      edge["id"] = fmt::format("{}.{}", rank, i);
      lines.push_back(edge.dump());
    }
  }
  return fmt::format("{}", fmt::join(lines, ",\n"));
}

std::string trace_json(std::span<std::string const> ranks) {
  return fmt::format("[\n{}\n]\n", fmt::join(ranks, ",\n"));
}

} // namespace trainstone
