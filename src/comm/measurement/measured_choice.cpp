#include "comm/measurement/measured_choice.hpp"

#include "core/error.hpp"

#include <algorithm>

namespace trainstone {

namespace {

double median_of(std::vector<double> seconds) {
  auto const middle = seconds.begin() + std::ssize(seconds) / 2;
  std::ranges::nth_element(seconds, middle);
  return *middle;
}

} // namespace

std::vector<PricedAlgorithm> close_candidates(Problem const& problem, std::size_t element_bytes,
                                              MachineModel const& machine, double factor,
                                              std::span<Algorithm const> among) {
  std::vector<PricedAlgorithm> candidates = rank_algorithms(problem, element_bytes, machine, among);
  double const limit = factor * candidates.front().seconds;
  std::erase_if(candidates, [&](PricedAlgorithm const& one) { return one.seconds > limit; });
  return candidates;
}

std::vector<double> time_candidates(ExecutionSpace const& exec, Communicator& communicator, Problem const& problem,
                                    Operation operation, ElementType type, std::span<PricedAlgorithm const> candidates,
                                    MeasuredBuffers const& memory, bool fresh) {
  TRAINSTONE_REQUIRE(!candidates.empty(), "no candidates for {}", to_string(problem.collective));
  std::vector<Contestant> contestants;
  for (PricedAlgorithm const& one : candidates)
    contestants.push_back({.algorithm = one.algorithm, .segment = one.segment});
  ContestOptions options;
  options.timing.warmup_calls = 2;
  options.timing.samples = 4;
  options.timing.sample_seconds = 5e-4;
  options.check = false;
  options.fresh = fresh;
  std::vector<double> medians;
  for (ContestResult const& result :
       run_contest(exec, communicator, problem, operation, type, contestants, memory, options))
    medians.push_back(median_of(result.samples.seconds));
  return medians;
}

PricedAlgorithm choose_by_measurement(ExecutionSpace const& exec, Communicator& communicator, Problem const& problem,
                                      Operation operation, ElementType type,
                                      std::span<PricedAlgorithm const> candidates, MeasuredBuffers const& memory,
                                      bool fresh) {
  TRAINSTONE_REQUIRE(!candidates.empty(), "no candidates for {}", to_string(problem.collective));
  if (candidates.size() == 1) return candidates.front();
  std::vector<double> const seconds =
      time_candidates(exec, communicator, problem, operation, type, candidates, memory, fresh);
  return candidates[static_cast<std::size_t>(std::ranges::min_element(seconds) - seconds.begin())];
}

} // namespace trainstone
