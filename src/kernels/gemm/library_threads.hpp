#pragma once

// The number of threads that libraries of matrix products start on the host. Libraries that use OpenMP ask its runtime,
// whose default is one thread per core in every rank. If the build found no OpenMP, libraries decide for themselves.

#include "kernels/gemm/gemm_shape.hpp"

namespace trainstone {

/// Sets the number for products that this thread calls from now on to `threads`, unless OMP_NUM_THREADS is set.
void limit_library_threads(int threads);

/// Sets the number to the threads of kernels: one in Serial builds, the runtime's number with OpenMP. For main(),
/// before the first product.
void match_library_threads_to_kernels();

/// The number of threads that such a product may use; 1 if the build found no OpenMP.
int library_threads();

/// The number for products by `choice`; 0 if no library of the host computes any of them.
int library_threads(GemmChoice const& choice);

} // namespace trainstone
