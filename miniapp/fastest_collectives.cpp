#include "fastest_collectives.hpp"

#include "comm/algorithms/registry.hpp"
#include "comm/measurement/measured_choice.hpp"
#include "core/plural.hpp"
#include "core/quantity.hpp"
#include "deck/deck_checks.hpp"
#include "parallel/engine/mesh_communicators.hpp"
#include "parallel/plan/parallel_problems.hpp"
#include "parallel/program/shard_traffic.hpp"
#include "report/output.hpp"
#include "report/report_text.hpp"
#include "train/plan/run_plan.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace trainstone {

namespace {

/// What is tried for a key.
struct Trial {
  AlgorithmKey key;
  Axis axis;
  Problem problem; ///< of this rank's group
  ElementType type;
  std::vector<PricedAlgorithm> candidates; ///< the same on all ranks
};

/// So many messages fit into the scratch of a rank, the root if there is one. An algorithm that needs more is not
/// tried: the naive ones need one per rank, for which there may be no memory.
constexpr Index most_scratch = 4;

/// The collective on the ranks of the axis that `rank` belongs to.
Problem problem_of(StateLayout const& layout, PlannedCollective const& planned, Rank rank) {
  Problem problem = planned.problem;
  problem.topology = layout.topology.of(layout.mesh.members(planned.axis, rank));
  problem.segment = default_segment; // as the training runs it
  return problem;
}

/// Whether the deck could name it, and ranks of every group can run it.
bool is_legal(RunConfig config, StateLayout const& layout, AlgorithmKey const& key, PlannedCollective const& planned,
              Algorithm algorithm, bool reaches_neighbours) {
  config.comm = with_algorithm(config.comm, key.name, to_string(algorithm));
  if (!reaches_neighbours && find_neighbours_problem(config, "")) return false;
  if (find_network_problem(config) || find_buffers_problem(config) ||
      find_parallel_problem(config.parallel, config.comm, layout.mesh.data(), layout.rank_micro_batches))
    return false;
  for (Rank rank = 0; rank < layout.mesh.ranks(); ++rank) {
    if (layout.mesh.index(planned.axis, rank) != 0) continue; // one of a group is enough
    Problem problem = problem_of(layout, planned, rank);
    problem.shared_memory = find_algorithm(key.collective, algorithm).uses_shared_memory();
    if (!refusal(problem, algorithm).empty()) return false;
    Index const scratch = make_schedule(problem, algorithm, problem.root).scratch_elements;
    if (scratch > most_scratch * problem.elements()) return false;
  }
  return true;
}

Trial make_trial(RunConfig const& config, StateLayout const& layout, AlgorithmKey const& key,
                 RepeatedCollective const& heaviest, bool reaches_neighbours) {
  PlannedCollective const& planned = heaviest.planned;
  std::vector<Algorithm> algorithms = unlimited_algorithms_of(key.collective);
  std::erase_if(algorithms,
                [&](Algorithm one) { return !is_legal(config, layout, key, planned, one, reaches_neighbours); });
  bool const shared = std::ranges::any_of(
      algorithms, [&](Algorithm one) { return find_algorithm(key.collective, one).uses_shared_memory(); });
  Problem of_first = problem_of(layout, planned, 0), own = problem_of(layout, planned, layout.rank);
  of_first.shared_memory = own.shared_memory = shared;
  bool const is_fp32 = heaviest.element_bytes == sizeof(float); // else gradients have the type of parameters
  return {key, planned.axis, own, is_fp32 ? ElementType::float32 : element_type_of(layout.types.parameters),
          close_candidates(of_first, heaviest.element_bytes, default_machine(), assumed_close_factor, algorithms)};
}

/// A trial comes before require_memory() of the training. \param[in] bytes  of a rank  \param[in] ranks  of this
/// machine
void require_memory(AlgorithmKey const& key, std::uint64_t bytes, std::int64_t ranks) {
  std::uint64_t const needed = static_cast<std::uint64_t>(ranks) * bytes, present = describe_machine().memory_bytes;
  if (needed <= present) return;
  throw Error(
      fmt::format("does not fit: {} = \"measured\" tries algorithms in {} on this machine, which has {}; name an "
                  "algorithm, or take auto",
                  key.name, mebibytes(needed), mebibytes(present)),
      ExitCode::does_not_fit);
}

/// \param[in] neighbours  ranks of this machine
std::vector<Trial> plan_trials(ResolvedRun const& run, Communicator const& world, std::int64_t neighbours) {
  auto const is_measured = [&](AlgorithmKey const& key) { return run.config.comm.*key.member == algorithm_measured; };
  if (std::ranges::none_of(algorithm_keys, is_measured)) return {};
  ShardPlan const plan = plan_run(run, world.rank()).parallel;
  std::vector<Trial> trials;
  for (AlgorithmKey const& key : algorithm_keys)
    if (auto const heaviest = heaviest_collective(plan, key.collective, key.of_tensor_ranks);
        heaviest && is_measured(key)) {
      auto const elements = static_cast<std::uint64_t>(heaviest->planned.problem.elements());
      require_memory(key, elements * heaviest->element_bytes, neighbours); // pricing such messages takes hours
      trials.push_back(make_trial(run.config, plan.layout, key, *heaviest, world.reaches_neighbours()));
    }
  return trials;
}

std::string describe(std::vector<Trial> const& trials) {
  std::string text;
  for (Trial const& trial : trials) {
    text += fmt::format("{}{} with {} elements {} of", text.empty() ? "" : "; ", trial.key.name,
                        trial.problem.elements(), to_string(trial.type));
    for (PricedAlgorithm const& one : trial.candidates) text += fmt::format(" {}", to_string(one.algorithm));
  }
  return text.empty() ? "nothing" : text;
}

/// Else ranks would wait for each other.
void require_same_trials(std::vector<Trial> const& trials, Communicator const& communicator) {
  std::vector<std::string> const all = all_gather_texts(communicator, describe(trials));
  for (std::size_t rank = 1; rank < all.size(); ++rank)
    if (all[rank] != all[0])
      throw CollectiveError(fmt::format("rank {} would measure {}; rank 0: {}. Do all ranks see the same files and the "
                                        "same TRAINSTONE_SET?",
                                        rank, all[rank], all[0]),
                            ExitCode::usage);
}

/// Collective over `world`. \param[in] group  of the trial's axis    \param[in] neighbours  ranks of this machine
ChosenAlgorithm choose(ExecutionSpace const& exec, Communicator const& world, Communicator& group, Trial const& trial,
                       std::int64_t neighbours) {
  std::vector<Contestant> contestants;
  for (PricedAlgorithm const& one : trial.candidates)
    contestants.push_back({.algorithm = one.algorithm, .segment = one.segment});
  MeasuredBytes const bytes = contest_bytes(group.buffers(), trial.problem, group.rank(), trial.type, contestants);
  collectively(world, [&] { require_memory(trial.key, bytes.data + bytes.scratch + bytes.staging, neighbours); });
  MemoryLedger ledger;
  MeasuredMemory const memory(exec, group, ledger, "measured collectives", bytes, trial.problem.shared_memory);
  std::vector<double> const seconds =
      time_candidates(exec, group, trial.problem, Operation::sum, trial.type, trial.candidates, memory.buffers(), true);
  auto const own = static_cast<std::size_t>(std::ranges::min_element(seconds) - seconds.begin());
  std::size_t const fastest = all_gather_values(world, own)[0];
  ChosenAlgorithm chosen{trial.key.name,
                         std::string(to_string(trial.candidates[fastest].algorithm)),
                         group.size(),
                         static_cast<std::uint64_t>(trial.problem.elements()) * size_of(trial.type),
                         {}};
  for (std::size_t i = 0; i < seconds.size(); ++i)
    chosen.seconds.emplace_back(to_string(trial.candidates[i].algorithm), seconds[i]);
  return chosen;
}

} // namespace

std::vector<ChosenAlgorithm> find_fastest_collectives(RankContext& context, std::int64_t neighbours,
                                                      ResolvedRun const& asked) {
  Communicator const& world = context.communicator;
  std::vector<Trial> trials;
  collectively(world, [&] { trials = plan_trials(asked, world, neighbours); });
  require_same_trials(trials, world);
  if (trials.empty()) return {};
  MeshCommunicators groups(world, asked.mesh);
  std::vector<ChosenAlgorithm> chosen;
  for (Trial const& trial : trials)
    chosen.push_back(choose(context.exec, world, groups.of(trial.axis), trial, neighbours));
  return chosen;
}

std::string chosen_line(ChosenAlgorithm const& chosen) {
  std::vector<std::pair<std::string, double>> tried = chosen.seconds;
  std::ranges::stable_sort(tried, {}, [](auto const& one) { return one.second; });
  std::string text = fmt::format("{} measured with {} on {}: {} takes {}", chosen.key,
                                 to_string(Quantity{Dimension::size, static_cast<double>(chosen.bytes)}),
                                 plural(chosen.ranks, "rank"), tried[0].first, seconds_text(tried[0].second));
  if (tried.size() > 1)
    text += fmt::format(", {} as the next of {} algorithms {}", tried[1].first, tried.size(),
                        seconds_text(tried[1].second));
  return text;
}

} // namespace trainstone
