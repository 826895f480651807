#include "train/injected_delay.hpp"

#include "core/clock.hpp"
#include "core/launch.hpp"

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>

namespace trainstone {

namespace {

constexpr std::string_view of_collectives = "trainstone::comm::", of_checkpoints = "trainstone::checkpoint::";

std::string_view place_of(std::string_view label) {
  if (label.starts_with(of_checkpoints)) return "checkpoint";
  return label.starts_with(of_collectives) ? label.substr(of_collectives.size()) : "kernel";
}

} // namespace

bool is_kernel(std::string_view label, std::string_view kernel) {
  constexpr std::string_view prefix = "trainstone::";
  if (!label.starts_with(prefix)) return false;
  label.remove_prefix(prefix.size());
  if (!label.starts_with(kernel)) return false;
  label.remove_prefix(kernel.size());
  return label.empty() || label.starts_with("::") || label.starts_with('[');
}

std::optional<ConfigProblem> find_delay_problem(FaultConfig const& faults) {
  if (faults.slow_kernel.empty() != (faults.slow_factor == 1))
    return faults.slow_kernel.empty()
               ? ConfigProblem{"faults.slow.factor", "faults.slow.factor needs faults.slow.kernel"}
               : ConfigProblem{"faults.slow.kernel", "faults.slow.kernel needs faults.slow.factor above 1"};
  if (faults.delay_where.empty() == (faults.delay_time == 0)) return std::nullopt;
  if (faults.delay_time == 0) return ConfigProblem{"faults.delay.where", "faults.delay.where needs faults.delay.time"};
  return ConfigProblem{"faults.delay.time", "faults.delay.time needs faults.delay.where"};
}

std::optional<ConfigProblem> find_delay_problem(FaultConfig const& faults, std::int64_t ranks) {
  if (faults.delay_rank < ranks) return std::nullopt;
  return problem("faults.delay.rank",
                 "faults.delay.rank = {} is no rank of this run; nearest legal value: {}, or -1 for all",
                 faults.delay_rank, ranks - 1);
}

InjectedDelay::InjectedDelay(FaultConfig const& faults, std::int64_t rank) {
  auto const slow = [kernel = faults.slow_kernel, more = faults.slow_factor - 1](char const* label, double seconds) {
    if (!is_kernel(label, kernel)) return;
    SteadyTime const start = std::chrono::steady_clock::now();
    while (seconds_since(start) < more * seconds) continue;
  };
  if (faults.slow_factor > 1) m_slow.emplace(kernel_end(), slow);
  // a progress thread comes to delay points, too
  auto const times = std::make_shared<std::atomic<std::int64_t>>(0);
  std::chrono::duration<double> const time(faults.delay_time);
  auto const delay = [where = faults.delay_where, every = faults.delay_every, time, times](char const* label) {
    if (place_of(label) == where && ++*times % every == 0) std::this_thread::sleep_for(time);
  };
  bool const is_here = faults.delay_rank < 0 || faults.delay_rank == rank;
  if (faults.delay_time > 0 && is_here) m_delay.emplace(delay_point(), delay);
}

} // namespace trainstone
