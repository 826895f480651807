#pragma once

// The configuration of kernels. A plain value without Kokkos, so that decks and tools read it cheaply; the provider
// itself is made from the name in kernels/gemm/gemm_shape.hpp, which refuses a provider that was not built.

#include <array>
#include <string>
#include <string_view>

namespace trainstone {

/// Every name that a build may know. "auto" takes the first that was built, in a fixed order, never by timing.
inline constexpr std::array<std::string_view, 7> gemm_provider_names{"auto",     "kokkos-kernels", "onednn", "kokkos",
                                                                     "cublaslt", "cublaslt-tf32",  "blas"};

/// Instead of a provider: for every product the fastest provider, as measured on this machine.
inline constexpr std::string_view gemm_measured = "measured";

struct KernelConfig {
  std::string gemm = "auto";
  std::string attention = "auto"; ///< or one of attention_provider_names (kernels/attention/attention_provider.hpp)
  bool graphs = false;            ///< kernels of a step that repeats are started by one call (core/kernel_graph.hpp)
};

} // namespace trainstone
