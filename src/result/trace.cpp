#include "result/trace.hpp"

#include "core/json_text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

namespace trainstone {

namespace {

using Json = nlohmann::ordered_json;
using Lines = std::vector<std::string>;

constexpr std::size_t events_of_a_piece = 4096;

constexpr std::array lanes{std::pair{Lane::compute, "compute"}, std::pair{Lane::wait, "wait"},
                           std::pair{Lane::collective, "communication"}, std::pair{Lane::slot, "activations"},
                           std::pair{Lane::file, "file"}};

Json event_json(char const* phase, std::int64_t rank, TimelineEvent const& event, std::int64_t nanoseconds) {
  return {{"name", event.name}, {"cat", lanes.at(static_cast<std::size_t>(event.lane)).second},
          {"ph", phase},        {"ts", static_cast<double>(nanoseconds) / 1e3},
          {"pid", rank},        {"tid", static_cast<int>(event.lane)}};
}

/// What viewers show beside the events.
Json metadata_json(char const* what, std::int64_t rank, Lane lane, Json const& arguments) {
  return {{"name", what}, {"ph", "M"}, {"pid", rank}, {"tid", static_cast<int>(lane)}, {"args", arguments}};
}

void add_metadata(Lines& lines, std::int64_t rank, std::string const& name, std::string const& deck_hash) {
  auto const add = [&](char const* what, Lane lane, Json const& arguments) {
    lines.push_back(json_line(metadata_json(what, rank, lane, arguments)));
  };
  add("process_name", Lane::compute, {{"name", name}});
  add("process_labels", Lane::compute, {{"labels", "deck " + deck_hash}, {"deck_hash", deck_hash}});
  for (auto const& [lane, lane_name] : lanes) add("thread_name", lane, {{"name", lane_name}});
}

void add_event(Lines& lines, std::int64_t rank, std::size_t number, TimelineEvent const& event) {
  if (event.lane == Lane::compute || event.lane == Lane::wait) {
    Json complete = event_json("X", rank, event, event.begin);
    complete["dur"] = static_cast<double>(event.end - event.begin) / 1e3;
    lines.push_back(json_line(complete));
    return;
  }
  // other events of a lane nest: what overlaps is told apart by its number
  for (auto const& [phase, time] : {std::pair{"b", event.begin}, std::pair{"e", event.end}}) {
    Json edge = event_json(phase, rank, event, time);
    edge["id"] = fmt::format("{}.{}", rank, number);
    lines.push_back(json_line(edge));
  }
}

} // namespace

TraceText::TraceText(std::int64_t rank, std::string name, std::string deck_hash, std::size_t events,
                     std::function<TimelineEvent(std::size_t)> event)
    : m_rank(rank),
      m_name(std::move(name)),
      m_deck_hash(std::move(deck_hash)),
      m_events(events),
      m_event(std::move(event)) {}

std::string TraceText::next() {
  Lines lines;
  if (!std::exchange(m_has_begun, true)) add_metadata(lines, m_rank, m_name, m_deck_hash);
  std::size_t const end = std::min(m_events, m_next + events_of_a_piece);
  for (; m_next < end; ++m_next) add_event(lines, m_rank, m_next, m_event(m_next));
  return fmt::format("{}", fmt::join(lines, ",\n"));
}

TraceFile::TraceFile(std::filesystem::path const& path) : m_file(path) { m_file.write("[\n"); }

void TraceFile::add(std::string const& piece) {
  if (!std::exchange(m_is_empty, false)) m_file.write(",\n");
  m_file.write(piece);
}

void TraceFile::finish() {
  m_file.write("\n]\n");
  m_file.commit();
}

} // namespace trainstone
