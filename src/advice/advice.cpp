#include "advice/advice.hpp"

#include "advice/largest_fit.hpp"
#include "advice/least_time.hpp"
#include "advice/rough_time.hpp"
#include "core/error.hpp"
#include "lectures/taught_capability.hpp"
#include "parallel/plan/recipe.hpp"
#include "parallel/plan/strategies.hpp"

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <utility>

namespace trainstone {

namespace {

struct Search {
  AdviceRequest const& request;
  Deck deck;
  WayBatch batch;
  StepMachine const* machine; ///< null: whether anything fits is all that is asked
  Advice advice = {};

  bool fits(std::uint64_t bytes) const { return !request.memory || bytes <= *request.memory; }
  DeckOnRanks on(Way const& way) const { return on_way(request.asked, deck, way, batch); }
};

/// The way, if it is legal and its first and last stage fit. \param[in,out] least  bytes of the first stage
std::optional<RankedWay> plan_way(Search& search, Way const& way, std::optional<std::uint64_t>& least) {
  try {
    ResolvedRun const run = planned_run(search.on(way));
    RunPlan const first = plan_memory(run, 0);
    std::uint64_t needed = first.kernel_memory();
    least = std::min(least.value_or(needed), needed);
    if (!search.fits(needed)) return std::nullopt;
    if (way.pipeline > 1) {
      Rank const last = run.mesh.rank_at(Axis::pipeline, 0, run.mesh.pipeline - 1);
      needed = std::max(needed, plan_memory(run, last).kernel_memory());
      if (!search.fits(needed)) return std::nullopt;
    }
    RankedWay found{.way = way,
                    .keys = keys_of(way, search.batch, search.deck),
                    .needed = needed,
                    .on_host = first.pinned_bytes,
                    .in_file = first.file_bytes};
    if (!search.machine) return found;
    PartTimes const times = part_times(run, first, *search.machine);
    found.rough_seconds = rough_seconds(way, run, first, times, *search.machine);
    found.least_seconds = least_seconds(run, times);
    found.has_time = search.machine->offload || way.optimizer == Residence::kernels;
    if (found.has_time) found.rough_seconds += seconds_of_moves(first, times, *search.machine, found.rough_seconds);
    return found;
  } catch (InputError const&) { // not legal with the deck's other keys
    return std::nullopt;
  }
}

/// Ways that differ in savings alone: with and without shared positions and for every place of the optimizer's state
/// the first that fits. To move the state is of use only if less is computed again than without.
void add_first_fits(Search& search, Way const& way, std::vector<RankedWay>& found,
                    std::optional<std::uint64_t>& least) {
  std::map<std::pair<bool, Residence>, Recompute> least_again; // by sequence and place
  auto const fits_with_less = [&](Way const& saving, Residence place) {
    auto const fit = least_again.find({saving.sequence, place});
    return fit != least_again.end() && fit->second <= saving.recompute;
  };
  for (Way const& saving : with_savings(way, search.deck.config)) {
    if (fits_with_less(saving, Residence::kernels) || fits_with_less(saving, saving.optimizer)) continue;
    ++search.advice.ways;
    if (!search.request.memory ||
        least_state(saving, search.deck.config) <= static_cast<double>(*search.request.memory)) {
      std::optional<RankedWay> fit = plan_way(search, saving, least);
      if (!fit) continue;
      least_again.emplace(std::pair(saving.sequence, saving.optimizer), saving.recompute);
      found.push_back(std::move(*fit));
    } else {
      ++search.advice.without_a_plan;
    }
  }
}

/// \return those of the mesh that fit, the fastest by rough time first
std::vector<RankedWay> ways_of_mesh(Search& search, Way const& mesh, std::optional<std::uint64_t>& least) {
  std::vector<RankedWay> found;
  for (Way const& scheduled : with_schedules(mesh, search.deck.config.model, search.batch))
    for (Way const& way : with_strategies(scheduled)) add_first_fits(search, way, found, least);
  std::ranges::stable_sort(found, {}, &RankedWay::rough_seconds);
  return found;
}

bool play(Search const& search, RankedWay& one) {
  DeckOnRanks const asked = search.on(one.way);
  one.needed = needed_memory(asked);
  if (!search.fits(one.needed)) return false;
  one.time = price_step(planned_run(asked), *search.machine);
  one.played = true;
  return true;
}

/// Plays timelines: first for the list, then of ways that may still be faster than the fastest.
class Plays {
public:
  Plays(Search const& search, std::vector<RankedWay> ways)
      : m_search(search), m_listed(std::min(search.request.listed, search.request.played)), m_others(std::move(ways)) {}

  void play_for_list() {
    std::map<std::pair<std::int64_t, std::int64_t>, std::size_t> of_mesh;
    play_if([&](RankedWay const& one) {
      if (m_played.size() >= m_listed) return false;
      return of_mesh[{one.way.tensor, one.way.pipeline}]++ < most_of_a_mesh;
    });
  }
  void play_what_may_win() {
    play_if([&](RankedWay const& one) {
      return m_played.size() < m_search.request.played && one.least_seconds < m_fastest;
    });
  }
  /// With a timeline by their time, then the others.
  std::vector<RankedWay> take() {
    std::ranges::stable_sort(m_played, {}, [](RankedWay const& one) { return one.time.step; });
    std::ranges::move(m_others, std::back_inserter(m_played));
    return std::move(m_played);
  }

private:
  template <class Choose>
  void play_if(Choose const& choose) {
    std::vector<RankedWay> others;
    for (RankedWay& one : m_others) {
      if (!one.has_time || !choose(one)) {
        others.push_back(std::move(one));
      } else if (play(m_search, one)) {
        m_fastest = std::min(m_fastest, one.time.step);
        m_played.push_back(std::move(one));
      }
    }
    m_others = std::move(others);
  }

  Search const& m_search;
  std::size_t m_listed;
  std::vector<RankedWay> m_played, m_others;
  double m_fastest = std::numeric_limits<double>::infinity();
};

/// Moves ways with a timeline to the front of the list.
void play_best(Search const& search, std::vector<RankedWay>& all) {
  std::ranges::stable_sort(all, {}, [](RankedWay const& one) { return std::pair(!one.has_time, one.rough_seconds); });
  Plays plays(search, std::move(all));
  plays.play_for_list();
  plays.play_what_may_win();
  all = plays.take();
}

Search search_of(AdviceRequest const& request, StepMachine const* machine) {
  Deck deck = request.asked.deck();
  WayBatch const batch = batch_of_ways(request.asked);
  return {request, std::move(deck), batch, machine};
}

/// Whether a way that needs least memory fits on so many ranks. What is on the host or in a file, any host holds.
bool anything_fits(AdviceRequest const& request, WayBatch const& batch) {
  Search search = search_of(request, nullptr);
  search.batch = batch;
  for (Way const& mesh : meshes(search.deck.config.model, batch, request.asked.ranks)) {
    Way way = mesh;
    way.recompute = Recompute::full;
    way.sequence = mesh.tensor > 1;
    way.optimizer = Residence::host;
    if (mesh.data > 1) way.strategy = Strategy::zero, way.zero_stage = 3;
    std::optional<std::uint64_t> least;
    if (request.memory && least_state(way, search.deck.config) > static_cast<double>(*request.memory)) continue;
    if (plan_way(search, way, least)) return true;
  }
  return false;
}

} // namespace

double least_state(Way const& way, RunConfig const& config) {
  if (way.pipeline > config.model.layers + 2) return 0;
  auto const parameters = static_cast<double>(largest_rank_parameters(config.model, way.tensor, way.pipeline));
  bool const hybrid = way.strategy == Strategy::hsdp;
  int const stage = hybrid ? 3 : static_cast<int>(way.zero_stage);
  auto const sharers = static_cast<double>(hybrid ? way.shard_group : way.data);
  auto const bytes = state_bytes(recipe(config.precision.recipe, config.optimizer), stage, parameters, sharers);
  return way.optimizer == Residence::kernels ? bytes.total() : bytes.parameters + bytes.gradients;
}

Advice find_ways(AdviceRequest const& request, StepMachine const& machine) {
  Search search = search_of(request, &machine);
  Advice& advice = search.advice;
  advice.batch = search.batch;
  std::vector<Way> const all = meshes(search.deck.config.model, search.batch, request.asked.ranks);
  TRAINSTONE_REQUIRE_INPUT(!all.empty(),
                           "--advise: batch.global = {} is no multiple of batch.micro = {} x data ranks on any mesh of "
                           "{} ranks; --set batch.micro and batch.global",
                           search.batch.global, search.batch.micro, request.asked.ranks);
  for (Way const& mesh : all) {
    std::optional<std::uint64_t> least;
    std::vector<RankedWay> found = ways_of_mesh(search, mesh, least);
    if (found.empty()) advice.excluded.push_back({mesh, least});
    std::ranges::move(found, std::back_inserter(advice.ranked));
  }
  play_best(search, advice.ranked);
  return std::move(advice);
}

std::int64_t may_still_win(Advice const& advice) {
  if (advice.ranked.empty() || !advice.ranked.front().played) return 0;
  return std::ranges::count_if(advice.ranked, [&](RankedWay const& one) {
    return !one.played && one.has_time && one.least_seconds < advice.ranked.front().time.step;
  });
}

std::optional<std::int64_t> ranks_that_fit(AdviceRequest const& request, std::int64_t most) {
  WayBatch const batch = batch_of_ways(request.asked);
  for (AdviceRequest larger = request; larger.asked.ranks <= most; larger.asked.ranks *= 2)
    if (anything_fits(larger, batch)) return larger.asked.ranks;
  return std::nullopt;
}

Way own_way(DeckOnRanks const& asked) {
  RunConfig const config = asked.deck().config;
  ParallelConfig const& parallel = config.parallel;
  return {.tensor = parallel.tensor,
          .pipeline = parallel.pipeline,
          .data = mesh_of(parallel, asked.ranks).data(),
          .schedule = parallel.pipeline_schedule,
          .chunks = parallel.pipeline_chunks,
          .strategy = parallel.strategy,
          .zero_stage = parallel.zero_stage,
          .shard_group = parallel.shard_group,
          .sequence = parallel.sequence,
          .recompute = config.model_options.recompute_of(0),
          .optimizer = parallel.offload_optimizer};
}

int changes(Way const& from, Way const& to) {
  bool const same_schedule = to.pipeline == 1 || (from.schedule == to.schedule && from.chunks == to.chunks);
  bool const same_sharing =
      from.strategy == to.strategy && from.zero_stage == to.zero_stage && from.shard_group == to.shard_group;
  return (from.tensor != to.tensor) + (from.pipeline != to.pipeline) + !same_schedule + !same_sharing +
         (from.sequence != to.sequence) + (from.recompute != to.recompute) + (from.optimizer != to.optimizer);
}

RankedWay const* least_change(Way const& from, std::vector<RankedWay> const& ranked) {
  auto const least = std::ranges::min_element(ranked, {}, [&](RankedWay const& one) { return changes(from, one.way); });
  return least == ranked.end() ? nullptr : &*least;
}

} // namespace trainstone
