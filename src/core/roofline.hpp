#pragma once

// The roofline model: which peak of a machine bounds a kernel. No Kokkos here: the tables of results need it, too.

#include <algorithm>

namespace trainstone {

/// The least time of a kernel, in s, and the peak that it follows from: "gemm" or "bandwidth".
struct KernelBound {
  double seconds;
  char const* peak;
};

/// What computes `flops` at the rate of matrix products or moves `bytes` at the bandwidth, whichever takes longer.
inline KernelBound bound_kernel(double flops, double bytes, double gemm_flops_per_second,
                                double bandwidth_bytes_per_second) {
  double const computing = flops / gemm_flops_per_second, moving = bytes / bandwidth_bytes_per_second;
  return {std::max(computing, moving), computing > moving ? "gemm" : "bandwidth"};
}

} // namespace trainstone
