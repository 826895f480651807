#pragma once

// What becomes of errors of CUDA's calls. Empty where Kokkos has no CUDA.

#include "core/error.hpp"
#include "core/views.hpp"

#ifdef KOKKOS_ENABLE_CUDA
#include <cuda_runtime.h>

namespace trainstone {

/// \throws Error  naming `what`, if the call has failed
inline void check_cuda(cudaError_t code, char const* what) {
  if (code != cudaSuccess) static_cast<void>(cudaGetLastError()); // it is no failure of what comes next
  TRAINSTONE_REQUIRE(code == cudaSuccess, "{}: {} ({})", what, cudaGetErrorName(code), cudaGetErrorString(code));
}

} // namespace trainstone

#endif
