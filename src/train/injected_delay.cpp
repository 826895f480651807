#include "train/injected_delay.hpp"

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

std::optional<ConfigProblem> find_delay_problem(FaultConfig const& faults) {
  if (faults.delay_where.empty() == (faults.delay_time == 0)) return std::nullopt;
  if (faults.delay_time == 0) return ConfigProblem{"faults.delay.where", "faults.delay.where needs faults.delay.time"};
  return ConfigProblem{"faults.delay.time", "faults.delay.time needs faults.delay.where"};
}

std::optional<ConfigProblem> find_delay_problem(FaultConfig const& faults, std::int64_t ranks) {
  if (faults.delay_rank < ranks) return std::nullopt;
  return ConfigProblem{"faults.delay.rank", fmt::format("faults.delay.rank = {} is no rank of this run; nearest legal "
                                                        "value: {}, or -1 for all",
                                                        faults.delay_rank, ranks - 1)};
}

InjectedDelay::InjectedDelay(FaultConfig const& faults, std::int64_t rank)
    : m_installed(faults.delay_time > 0 && (faults.delay_rank < 0 || faults.delay_rank == rank)) {
  if (!m_installed) return;
  // a progress thread comes to delay points, too
  auto const times = std::make_shared<std::atomic<std::int64_t>>(0);
  std::chrono::duration<double> const time(faults.delay_time);
  delay_point() = [where = faults.delay_where, every = faults.delay_every, time, times](char const* label) {
    if (place_of(label) == where && ++*times % every == 0) std::this_thread::sleep_for(time);
  };
}

InjectedDelay::~InjectedDelay() {
  if (m_installed) delay_point() = nullptr;
}

} // namespace trainstone
