#include "report/measured_step.hpp"

#include "core/error.hpp"
#include "core/plural.hpp"
#include "result/json_file.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace trainstone {

namespace {

struct Event {
  std::string name;
  double begin = 0; ///< us since the recording began
  double length = 0;

  double end() const { return begin + length; }
};

/// What a trace has of one rank, each list by the begin of its events.
struct Traced {
  std::string deck_hash;
  std::vector<Event> instructions, collectives;
};

class TraceReader {
public:
  TraceReader(std::string const& path, Rank rank, std::set<std::string> instructions)
      : m_document(JsonFile::read(path, "; a run with trace.file writes one")),
        m_rank(rank),
        m_instructions(std::move(instructions)) {
    m_document.require(m_document.at("").is_array(), "no trace: must be an array of events");
    try {
      for (JsonFile::Json const& event : m_document.at("")) read(event);
    } catch (JsonFile::Json::exception const& error) {
      m_document.fail(fmt::format("no trace ({})", error.what()));
    }
    for (std::vector<Event>* const events : {&m_traced.instructions, &m_traced.collectives})
      std::ranges::stable_sort(*events, {}, &Event::begin);
  }

  Rank ranks() const { return static_cast<Rank>(m_ranks.size()); }
  Traced take() { return std::move(m_traced); }

private:
  void read(JsonFile::Json const& event) {
    Rank const rank = event.value("pid", Rank{-1});
    m_ranks.insert(rank);
    if (rank != m_rank) return;
    std::string const kind = event.value("ph", ""), lane = event.value("cat", ""), name = event.value("name", "");
    if (kind == "M" && name == "process_labels" && event.contains("args"))
      m_traced.deck_hash = event.at("args").value("deck_hash", "");
    if (kind == "X" && lane == "compute" && m_instructions.contains(name))
      m_traced.instructions.push_back({name, event.value("ts", 0.0), event.value("dur", 0.0)});
    if (lane != "communication") return;
    if (kind == "b") m_begun[event.value("id", "")] = event.value("ts", 0.0);
    if (kind == "e")
      if (auto const begun = m_begun.extract(event.value("id", "")))
        m_traced.collectives.push_back({name, begun.mapped(), event.value("ts", 0.0) - begun.mapped()});
  }

  JsonFile m_document;
  Rank m_rank;
  std::set<std::string> m_instructions; ///< their texts
  std::set<Rank> m_ranks;
  std::map<std::string, double> m_begun; ///< collectives without an end so far
  Traced m_traced;
};

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

/// The instructions of the step of median length.
std::vector<Event> median_step(std::vector<Event> const& events, std::string const& first, std::string const& last) {
  auto steps = find_steps(events, first, last);
  if (steps.empty()) return {};
  auto const middle = steps.begin() + std::ssize(steps) / 2;
  std::ranges::nth_element(steps, middle, {},
                           [&](auto const& step) { return events[step.second].end() - events[step.first].begin; });
  return {events.begin() + static_cast<std::ptrdiff_t>(middle->first),
          events.begin() + static_cast<std::ptrdiff_t>(middle->second) + 1};
}

} // namespace

MeasuredStep read_measured_step(std::string const& path, ClassTimeline const& one, ShardPlan const& plan) {
  std::vector<std::string> texts;
  for (TimelineEntry const& entry : one.entries) texts.push_back(to_string(entry.instruction, plan));
  TraceReader reader(path, one.ranks.first, {texts.begin(), texts.end()});
  Rank const ranks = plan.layout.mesh.ranks();
  TRAINSTONE_REQUIRE_INPUT(reader.ranks() == ranks, "{}: is a trace of {}, the step is one of {}", path,
                           plural(reader.ranks(), "rank"), plural(ranks, "rank"));
  Traced const traced = reader.take();
  std::vector<Event> const step = median_step(traced.instructions, texts.front(), texts.back());
  TRAINSTONE_REQUIRE_INPUT(!step.empty(), "{}: has no step of this program on rank {}: none from \"{}\" to \"{}\"",
                           path, one.ranks.first, texts.front(), texts.back());
  double const begin = step.front().begin, end = step.back().end();
  auto const time_of = [&](Event const& event) {
    return MeasuredTime{1e-3 * (event.begin - begin), 1e-3 * event.length};
  };
  MeasuredStep measured{traced.deck_hash, 1e-3 * (end - begin), {}, {}};
  auto next = step.begin();
  for (std::string const& text : texts) {
    auto const found = std::find_if(next, step.end(), [&](Event const& event) { return event.name == text; });
    TRAINSTONE_REQUIRE_INPUT(found != step.end(), "{}: its steps are of another program: one has no \"{}\" on rank {}",
                             path, text, one.ranks.first);
    measured.entries.push_back(time_of(*found));
    next = found + 1;
  }
  for (Event const& collective : traced.collectives)
    if (collective.begin < end && collective.end() > begin)
      measured.collectives.push_back({collective.name, time_of(collective)});
  return measured;
}

} // namespace trainstone
