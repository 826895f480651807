#pragma once

// The cores that a process computes on: what its threads are bound to, by whoever bound them. Does not bind.

#include <Kokkos_Core.hpp>

#include <cstdint>
#include <vector>

namespace trainstone {

/// The cores that the threads of `exec` may run on, of all together, ascending. The calling thread's alone would be too
/// few where OpenMP binds each to its own (OMP_PROC_BIND), those of the process too many: MPI's threads compute
/// nothing. All that are online where the system does not tell, as beyond 1024 cores.
std::vector<std::int64_t> cores_of_threads(Kokkos::DefaultHostExecutionSpace const& exec);

} // namespace trainstone
