#include "core/cores.hpp"

#include "core/index.hpp"

#include <sched.h>
#include <unistd.h>

#include <numeric>

namespace trainstone {

namespace {

/// nvcc 13 crashes where a container destroys a cpu_set_t, which is a struct without a name.
struct CoreSet {
  cpu_set_t cores = {};
};

} // namespace

std::vector<std::int64_t> cores_of_threads(Kokkos::DefaultHostExecutionSpace const& exec) {
  using Threads = Kokkos::RangePolicy<Kokkos::DefaultHostExecutionSpace, Kokkos::Schedule<Kokkos::Static>,
                                      Kokkos::IndexType<Index>>;
  std::vector<CoreSet> sets(static_cast<std::size_t>(exec.concurrency())); // by thread, which takes one iteration
  Kokkos::parallel_for("trainstone::core::cores_of_threads", Threads(exec, 0, std::ssize(sets)), [&](Index thread) {
    sched_getaffinity(0, sizeof(cpu_set_t), &sets[static_cast<std::size_t>(thread)].cores); // else it stays empty
  });
  exec.fence("trainstone::core::cores_of_threads: the host reads what threads have found");
  cpu_set_t together = {};
  bool is_told = true;
  for (CoreSet const& set : sets) {
    is_told = is_told && CPU_COUNT(&set.cores) > 0;
    CPU_OR(&together, &together, &set.cores);
  }
  if (!is_told) {
    std::vector<std::int64_t> all(static_cast<std::size_t>(sysconf(_SC_NPROCESSORS_ONLN)));
    std::iota(all.begin(), all.end(), 0);
    return all;
  }
  std::vector<std::int64_t> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &together)) cores.push_back(core);
  return cores;
}

} // namespace trainstone
