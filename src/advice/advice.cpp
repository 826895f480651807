#include "advice/advice.hpp"

#include "advice/least_time.hpp"
#include "advice/rough_time.hpp"
#include "core/error.hpp"
#include "lectures/taught_capability.hpp"
#include "model/part.hpp"
#include "parallel/plan/recipe.hpp"
#include "parallel/plan/strategies.hpp"
#include "report/machine_source.hpp"
#include "train/plan/extreme_plans.hpp"

#include <algorithm>
#include <iterator>
#include <limits>
#include <tuple>
#include <utility>

namespace trainstone {

namespace {

struct Search {
  AdviceRequest const& request;
  Deck deck;
  WayBatch batch;
  StepMachine const* machine; ///< null: whether anything fits is all that is asked
  Topology topology;          ///< of all ways
  bool plans_all = false;     ///< all ranks that may need most decide what fits, and not one of every kind of stage
  Advice advice = {};

  bool fits(std::uint64_t bytes) const { return !request.memory || bytes <= *request.memory; }
  DeckOnRanks on(Way const& way) const {
    DeckOnRanks there = on_way(request.asked, deck, way, batch);
    there.topology = topology;
    return there;
  }
};

/// A legal way whose stages fit.
struct PlannedWay {
  ResolvedRun run;
  RunPlan first; ///< of the first stage
  std::uint64_t needed = 0;
};

/// Nothing if the way is not legal, or does not fit. \param[in,out] least  bytes of the first stage
std::optional<PlannedWay> plan_legal(Search const& search, Way const& way, std::optional<std::uint64_t>& least) {
  try {
    ResolvedRun run = planned_run(search.on(way));
    RunPlan first = plan_memory(run, 0);
    std::uint64_t needed = first.kernel_memory();
    least = std::min(least.value_or(needed), needed);
    for (Rank const rank : first_of_kinds(run)) {
      if (!search.fits(needed)) return std::nullopt;
      if (rank > 0) needed = std::max(needed, plan_memory(run, rank).kernel_memory());
    }
    if (search.fits(needed) && search.plans_all) needed = plan_largest(run).kernel_memory();
    if (!search.fits(needed)) return std::nullopt;
    return PlannedWay{std::move(run), std::move(first), needed};
  } catch (InputError const&) { // not legal with the deck's other keys
    return std::nullopt;
  }
}

std::optional<RankedWay> plan_way(Search const& search, Way const& way, std::optional<std::uint64_t>& least) {
  std::optional<PlannedWay> const planned = plan_legal(search, way, least);
  if (!planned) return std::nullopt;
  RunPlan const& first = planned->first;
  RankedWay found{.way = way,
                  .keys = keys_of(way, search.batch, search.deck),
                  .needed = planned->needed,
                  .on_host = first.pinned_bytes,
                  .in_file = first.file_bytes};
  if (!search.machine) return found;
  PartTimes const times = part_times(planned->run, first, *search.machine);
  found.rough_seconds = rough_seconds(way, planned->run, first, times, *search.machine);
  found.least_seconds = least_seconds(planned->run, times);
  found.has_time = search.machine->offload || !way.moves();
  if (found.has_time) found.rough_seconds += seconds_of_moves(first, times, *search.machine, found.rough_seconds);
  return found;
}

bool state_fits(Search const& search, Way const& way) {
  return !search.request.memory || least_state(way, search.deck.config) <= static_cast<double>(*search.request.memory);
}

/// Whether state lies with the kernels, or where the deck has it.
bool stays(Way const& way, ParallelConfig const& own) {
  return !way.moves() || (way.optimizer == own.offload_optimizer && way.parameters == own.offload_parameters);
}

/// Ways that differ in savings alone: with and without shared positions and for every place of the state the first that
/// fits. To move state is of use only if less is computed again than without.
/// \param[in] considers  (Way) -> bool: which of them
template <class Considers>
void add_first_fits(Search& search, Way const& way, Considers const& considers, std::vector<RankedWay>& found,
                    std::optional<std::uint64_t>& least) {
  std::vector<Way> fit;
  for (Way const& saving : with_savings(way, search.deck.config)) {
    if (!considers(saving)) continue;
    bool const is_of_use = std::ranges::none_of(fit, [&](Way const& other) {
      return other.sequence == saving.sequence && other.recompute <= saving.recompute && moves_no_more(other, saving);
    });
    if (!is_of_use) continue;
    if (!search.plans_all) ++search.advice.ways;
    if (!state_fits(search, saving)) {
      if (!search.plans_all) ++search.advice.without_a_plan;
    } else if (std::optional<RankedWay> one = plan_way(search, saving, least)) {
      fit.push_back(saving);
      found.push_back(std::move(*one));
    }
  }
}

/// Ways of one mesh that fit, whatever they save. Where to move state has no time, state is moved only if nothing else
/// fits. \param[in] ways  without savings \param[in] others_fit  whether another way of the mesh fits
std::vector<RankedWay> fits_of(Search& search, std::vector<Way> const& ways, bool others_fit,
                               std::optional<std::uint64_t>& least) {
  std::vector<RankedWay> found;
  auto const find = [&](auto const& considers) {
    for (Way const& way : ways) add_first_fits(search, way, considers, found, least);
  };
  ParallelConfig const& own = search.deck.config.parallel;
  bool const has_times = search.machine->offload.has_value();
  find([&](Way const& way) { return has_times || stays(way, own); });
  if (!has_times && !others_fit && found.empty()) find([&](Way const& way) { return !stays(way, own); });
  return found;
}

/// \return those of the mesh that fit, the fastest by rough time first
std::vector<RankedWay> ways_of_mesh(Search& search, Way const& mesh, std::optional<std::uint64_t>& least) {
  std::vector<Way> ways;
  for (Way const& scheduled : with_schedules(mesh, search.deck.config.model, search.batch))
    std::ranges::move(with_strategies(scheduled), std::back_inserter(ways));
  std::vector<RankedWay> found = fits_of(search, ways, false, least);
  std::ranges::stable_sort(found, {}, &RankedWay::rough_seconds);
  return found;
}

bool play(Search const& search, RankedWay& one) {
  ResolvedRun const run = planned_run(search.on(one.way));
  one.needed = plan_largest(run).kernel_memory();
  if (!search.fits(one.needed)) return false;
  one.time = price_step(run, *search.machine);
  one.played = true;
  return true;
}

/// Plays timelines: first for the list, then of ways that may still be faster than the fastest.
class Plays {
public:
  Plays(Search& search, std::vector<RankedWay> ways)
      : m_search(search), m_listed(std::min(search.request.listed, search.request.played)), m_others(std::move(ways)) {
    sort_others();
  }

  void play_for_list() {
    play_if([&](RankedWay const& one) {
      if (m_played.size() >= m_listed) return false;
      return std::cmp_less(std::ranges::count(m_played, mesh_of_way(one), mesh_of_way), most_of_a_mesh);
    });
  }
  void play_what_may_win() {
    play_if([&](RankedWay const& one) {
      return m_played.size() < m_search.request.played && one.least_seconds < m_fastest;
    });
  }
  /// Puts ways that save more in the place of those that did not fit when all their ranks were planned.
  /// \return whether there were such
  bool replace_misfits() {
    std::vector<Way> const misfits = std::exchange(m_misfits, {});
    m_search.plans_all = true;
    std::erase_if(m_others, [&](RankedWay const& one) {
      return std::ranges::find(misfits, without_savings(one.way)) != misfits.end();
    });
    for (Way const& base : misfits) {
      std::optional<std::uint64_t> least;
      std::vector<RankedWay> found = fits_of(m_search, {base}, others_fit(base), least);
      std::erase_if(found, [&](RankedWay const& one) {
        return std::ranges::find(m_played, one.way, &RankedWay::way) != m_played.end();
      });
      std::ranges::move(found, std::back_inserter(m_others));
    }
    m_search.plans_all = false;
    sort_others();
    return !misfits.empty();
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
      } else {
        Way const base = without_savings(one.way);
        if (std::ranges::find(m_misfits, base) == m_misfits.end()) m_misfits.push_back(base);
      }
    }
    m_others = std::move(others);
  }

  static std::tuple<std::int64_t, std::int64_t, std::int64_t> mesh_of(Way const& way) {
    return {way.tensor, way.features, way.pipeline};
  }
  static std::tuple<std::int64_t, std::int64_t, std::int64_t> mesh_of_way(RankedWay const& one) {
    return mesh_of(one.way);
  }

  /// Whether a way on the same mesh fits that leaves state where it is.
  bool others_fit(Way const& way) const {
    auto const is_other = [&](RankedWay const& one) {
      return mesh_of_way(one) == mesh_of(way) && stays(one.way, m_search.deck.config.parallel);
    };
    return std::ranges::any_of(m_others, is_other) || std::ranges::any_of(m_played, is_other);
  }

  /// Those with a time first, the fastest by rough time of all first.
  void sort_others() {
    std::ranges::stable_sort(m_others, {},
                             [](RankedWay const& one) { return std::pair(!one.has_time, one.rough_seconds); });
  }

  Search& m_search;
  std::size_t m_listed;
  std::vector<RankedWay> m_played, m_others;
  std::vector<Way> m_misfits; ///< without their savings
  double m_fastest = std::numeric_limits<double>::infinity();
};

/// Moves ways with a timeline to the front of the list.
void play_best(Search& search, std::vector<RankedWay>& all) {
  Plays plays(search, std::move(all));
  do {
    plays.play_for_list();
    plays.play_what_may_win();
  } while (plays.replace_misfits());
  all = plays.take();
}

Search search_of(AdviceRequest const& request, WayBatch const& batch, StepMachine const* machine) {
  Deck deck = request.asked.deck();
  Topology const topology =
      imagined_topology(deck.config, request.asked.ranks, std::min(request.asked.nodes, request.asked.ranks));
  return {request, std::move(deck), batch, machine, topology};
}

/// Of ways that differ in savings alone, those that may need least memory. Parameters may be anywhere: with the kernels
/// they may need less than the slots to which they are gathered.
bool saves_most(Way const& way) {
  return way.recompute == Recompute::full && way.optimizer == Residence::host; // positions may not be shareable
}

/// Whether any way fits on so many ranks. What is on the host or in a file, any host holds.
bool anything_fits(AdviceRequest const& request, WayBatch const& batch) {
  Search search = search_of(request, batch, nullptr);
  search.plans_all = true;
  for (Way const& mesh : meshes(search.deck.config, batch, request.asked.ranks))
    for (Way const& way : with_strategies(mesh))
      for (Way const& saving : with_savings(way, search.deck.config)) {
        std::optional<std::uint64_t> least;
        if (saves_most(saving) && state_fits(search, saving) && plan_way(search, saving, least)) return true;
      }
  return false;
}

} // namespace

double least_state(Way const& way, RunConfig const& config) {
  if (way.pipeline > config.model.layers + 2) return 0;
  double const parameters = static_cast<double>(largest_rank_parameters(config.model, way.tensor, way.pipeline)) /
                            static_cast<double>(way.features);
  bool const hybrid = way.strategy == Strategy::hsdp;
  int const stage = hybrid ? 3 : static_cast<int>(way.zero_stage);
  auto const sharers = static_cast<double>(hybrid ? way.shard_group : way.data);
  auto const bytes = state_bytes(recipe(config.precision.recipe, config.optimizer), stage, parameters, sharers);
  double const of_optimizer = bytes.total() - bytes.parameters - bytes.gradients;
  return bytes.gradients + (way.parameters == Residence::kernels ? bytes.parameters : 0) +
         (way.optimizer == Residence::kernels ? of_optimizer : 0);
}

Advice find_ways(AdviceRequest const& request, StepMachine const& machine) {
  Search search = search_of(request, batch_of_ways(request.asked), &machine);
  Advice& advice = search.advice;
  advice.batch = search.batch;
  std::vector<Way> const all = meshes(search.deck.config, search.batch, request.asked.ranks);
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
          .features = parallel.features(),
          .schedule = parallel.pipeline_schedule,
          .chunks = parallel.pipeline_chunks,
          .strategy = parallel.strategy,
          .zero_stage = parallel.zero_stage,
          .shard_group = parallel.shard_group,
          .sequence = parallel.sequence,
          .recompute = config.model_options.recompute_of(0),
          .optimizer = parallel.offload_optimizer,
          .parameters = parallel.offload_parameters};
}

int changes(Way const& from, Way const& to) {
  bool const same_schedule = to.pipeline == 1 || (from.schedule == to.schedule && from.chunks == to.chunks);
  bool const same_sharing =
      from.strategy == to.strategy && from.zero_stage == to.zero_stage && from.shard_group == to.shard_group;
  return (from.tensor != to.tensor) + (from.features != to.features) + (from.pipeline != to.pipeline) + !same_schedule +
         !same_sharing + (from.sequence != to.sequence) + (from.recompute != to.recompute) +
         (from.optimizer != to.optimizer) + (from.parameters != to.parameters);
}

RankedWay const* least_change(Way const& from, std::vector<RankedWay> const& ranked) {
  auto const least = std::ranges::min_element(ranked, {}, [&](RankedWay const& one) { return changes(from, one.way); });
  return least == ranked.end() ? nullptr : &*least;
}

} // namespace trainstone
