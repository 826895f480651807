#pragma once

// The cores that a process computes on: the cores that its threads are bound to, whoever bound them. Does not bind
// threads.

#include <Kokkos_Core.hpp>

#include <cstdint>
#include <vector>

namespace trainstone {

/// The cores that the threads of `exec` may run on, all threads together, ascending. The cores of the calling thread
/// would be too few if OpenMP binds each thread to its own core (OMP_PROC_BIND). The cores of the process would be too
/// many, because MPI's threads compute nothing. If the system does not tell (as beyond 1024 cores), the result is all
/// online cores.
std::vector<std::int64_t> cores_of_threads(Kokkos::DefaultHostExecutionSpace const& exec);

} // namespace trainstone
