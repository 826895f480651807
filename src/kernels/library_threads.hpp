#pragma once

// How many threads libraries of matrix products start on the host: those that use OpenMP ask its runtime, whose default
// is one per core, in every rank. Where the build found no OpenMP, libraries decide for themselves.

#include "kernels/gemm.hpp"

namespace trainstone {

/// Of products that this thread calls from now on: `threads`, unless OMP_NUM_THREADS is set.
void limit_library_threads(int threads);

/// As many as kernels have: in Serial builds one, with OpenMP the runtime's. For main(), before the first product.
void match_library_threads_to_kernels();

/// What such a product may use; 1 where the build found no OpenMP.
int library_threads();

/// The same of products by `choice`; 0 where no library of the host computes any of them.
int library_threads(GemmChoice const& choice);

} // namespace trainstone
