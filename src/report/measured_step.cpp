#include "report/measured_step.hpp"

#include "core/error.hpp"
#include "core/plural.hpp"
#include "result/json_file.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <span>
#include <utility>
#include <vector>

namespace trainstone {

namespace {

struct Event {
  std::string name;
  double begin = 0; ///< us since the recording began
  double length = 0;

  double end() const { return begin + length; }
};

/// What a trace has of one rank, each list by the begin of its events.
struct TracedRank {
  std::set<std::string> texts; ///< of its instructions
  std::vector<Event> instructions = {}, collectives = {};
  std::map<std::string, double> begun = {}; ///< collectives without an end so far
};

class TraceReader {
public:
  /// \param[in] traced  the ranks that are read, with the texts of their instructions
  TraceReader(std::string const& path, std::map<Rank, TracedRank> traced)
      : m_document(JsonFile::read(path, "; a run with trace.file writes one")), m_traced(std::move(traced)) {
    m_document.require(m_document.at("").is_array(), "no trace: must be an array of events");
    try {
      for (JsonFile::Json const& event : m_document.at("")) read(event);
    } catch (JsonFile::Json::exception const& error) {
      m_document.fail(fmt::format("no trace ({})", error.what()));
    }
    for (auto& [rank, traced_rank] : m_traced)
      for (std::vector<Event>* const events : {&traced_rank.instructions, &traced_rank.collectives})
        std::ranges::stable_sort(*events, {}, &Event::begin);
  }

  Rank ranks() const { return static_cast<Rank>(m_ranks.size()); }
  std::string const& deck_hash() const { return m_deck_hash; }
  TracedRank const& of(Rank rank) const { return m_traced.at(rank); }

private:
  void read(JsonFile::Json const& event) {
    Rank const rank = event.value("pid", Rank{-1});
    m_ranks.insert(rank);
    auto const found = m_traced.find(rank);
    if (found == m_traced.end()) return;
    TracedRank& traced = found->second;
    std::string const kind = event.value("ph", ""), lane = event.value("cat", ""), name = event.value("name", "");
    if (kind == "M" && name == "process_labels" && event.contains("args"))
      m_deck_hash = event.at("args").value("deck_hash", "");
    if (kind == "X" && lane == "compute" && traced.texts.contains(name))
      traced.instructions.push_back({name, event.value("ts", 0.0), event.value("dur", 0.0)});
    if (lane != "communication") return;
    if (kind == "b") traced.begun[event.value("id", "")] = event.value("ts", 0.0);
    if (kind == "e")
      if (auto const begun = traced.begun.extract(event.value("id", "")))
        traced.collectives.push_back({name, begun.mapped(), event.value("ts", 0.0) - begun.mapped()});
  }

  JsonFile m_document;
  std::map<Rank, TracedRank> m_traced;
  std::set<Rank> m_ranks;
  std::string m_deck_hash;
};

using Step = std::pair<std::size_t, std::size_t>; ///< its first and its last event

/// Whole steps: from one that begins like the program to the next one, with the last instruction in it. Validations
/// begin alike, but do not end so.
std::vector<Step> find_steps(std::vector<Event> const& events, std::string const& first, std::string const& last) {
  std::vector<Step> steps;
  for (std::size_t begin = 0; begin < events.size(); ++begin) {
    if (events[begin].name != first) continue;
    std::size_t end = begin + 1;
    while (end < events.size() && events[end].name != first && events[end].name != last) ++end;
    if (end < events.size() && events[end].name == last) steps.emplace_back(begin, end);
  }
  return steps;
}

std::vector<std::string> texts_of(ClassTimeline const& one, std::vector<ShardPlan> const& stages) {
  std::vector<std::string> texts;
  for (TimelineEntry const& entry : one.entries)
    texts.push_back(to_string(entry.instruction, stages[static_cast<std::size_t>(one.ranks.stage)]));
  return texts;
}

/// A class in the trace.
struct TracedClass {
  Rank rank;
  std::vector<std::string> texts;
  std::vector<Event> const& events; ///< of instructions
  std::vector<Step> steps;
};

/// The steps that the trace has of all classes are the first ones of each: a trace may end earlier on some ranks.
std::size_t common_steps(std::vector<TracedClass> const& classes) {
  return std::ranges::min_element(classes, {}, [](TracedClass const& one) { return one.steps.size(); })->steps.size();
}

double begin_of(TracedClass const& one, std::size_t step) { return one.events[one.steps[step].first].begin; }
double end_of(TracedClass const& one, std::size_t step) { return one.events[one.steps[step].second].end(); }

/// A step takes as long as on the class on which it takes longest.
double length_of(std::vector<TracedClass> const& classes, std::size_t step) {
  double longest = 0;
  for (TracedClass const& one : classes) longest = std::max(longest, end_of(one, step) - begin_of(one, step));
  return longest;
}

/// The number of the step of median length.
std::size_t median_step(std::vector<TracedClass> const& classes) {
  std::vector<std::size_t> numbers(common_steps(classes));
  std::iota(numbers.begin(), numbers.end(), std::size_t{0});
  auto const middle = numbers.begin() + std::ssize(numbers) / 2;
  std::ranges::nth_element(numbers, middle, {}, [&](std::size_t step) { return length_of(classes, step); });
  return *middle;
}

MeasuredTime time_of(Event const& event, double begin) { return {1e-3 * (event.begin - begin), 1e-3 * event.length}; }

std::vector<MeasuredTime> times_of(std::span<Event const> step, TracedClass const& one, double begin,
                                   std::string const& path) {
  std::vector<MeasuredTime> times;
  auto next = step.begin();
  for (std::string const& text : one.texts) {
    auto const found = std::find_if(next, step.end(), [&](Event const& event) { return event.name == text; });
    TRAINSTONE_REQUIRE_INPUT(found != step.end(), "{}: its steps are of another program: one has no \"{}\" on rank {}",
                             path, text, one.rank);
    times.push_back(time_of(*found, begin));
    next = found + 1;
  }
  return times;
}

} // namespace

MeasuredStep read_measured_step(std::string const& path, StepTimeline const& timeline,
                                std::vector<ShardPlan> const& stages) {
  std::vector<std::vector<std::string>> texts;
  std::map<Rank, TracedRank> traced;
  for (ClassTimeline const& one : timeline.classes) {
    texts.push_back(texts_of(one, stages));
    traced.emplace(one.ranks.first, TracedRank{.texts = {texts.back().begin(), texts.back().end()}});
  }
  TraceReader const reader(path, std::move(traced));
  Rank const ranks = stages.front().layout.mesh.ranks();
  TRAINSTONE_REQUIRE_INPUT(reader.ranks() == ranks, "{}: is a trace of {}, the step is one of {}", path,
                           plural(reader.ranks(), "rank"), plural(ranks, "rank"));
  std::vector<TracedClass> classes;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    Rank const rank = timeline.classes[i].ranks.first;
    std::vector<Event> const& events = reader.of(rank).instructions;
    classes.push_back({rank, texts[i], events, find_steps(events, texts[i].front(), texts[i].back())});
    TRAINSTONE_REQUIRE_INPUT(!classes.back().steps.empty(),
                             "{}: has no step of this program on rank {}: none from \"{}\" to \"{}\"", path, rank,
                             texts[i].front(), texts[i].back());
  }
  std::size_t const number = median_step(classes);
  double begin = begin_of(classes.front(), number);
  for (TracedClass const& one : classes) begin = std::min(begin, begin_of(one, number));
  MeasuredStep step{reader.deck_hash(), 1e-3 * length_of(classes, number), {}};
  for (TracedClass const& one : classes) {
    auto const [first, last] = one.steps[number];
    MeasuredClass& found = step.classes.emplace_back();
    found.entries = times_of(std::span(one.events).subspan(first, last + 1 - first), one, begin, path);
    for (Event const& collective : reader.of(one.rank).collectives)
      if (collective.begin < one.events[last].end() && collective.end() > one.events[first].begin)
        found.collectives.push_back({collective.name, time_of(collective, begin)});
  }
  return step;
}

} // namespace trainstone
