#pragma once

// How many threads libraries of matrix products start on the host: those that use OpenMP ask its runtime. Promises: as
// many as kernels run on, unless OMP_NUM_THREADS says otherwise: ranks whose kernels are serial do not start a thread
// per core each. Where the build found no OpenMP, libraries decide for themselves.

namespace trainstone {

/// Of products that this thread calls from now on: `threads`, unless OMP_NUM_THREADS is set.
void limit_library_threads(int threads);

/// What such a product may use; 1 where the build found no OpenMP.
int library_threads();

} // namespace trainstone
