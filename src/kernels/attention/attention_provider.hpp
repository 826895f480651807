#pragma once

// Who computes attention that keeps log_sum_exp (model.attention = "flash"): the providers as values. What each of them
// supports, needs as scratch and launches: plans predict from these values, and attend.hpp computes. A build knows all
// providers and has some, so that the plan of another build can be made. Without Kokkos, so that plans are read
// cheaply. Does not choose by timing.

#include "core/index.hpp"
#include "core/storage.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trainstone {

enum class AttentionProvider {
  flash,        ///< the Kokkos kernels of flash_attention.hpp, which every build has
  tensor_cores, ///< those of kernels/cuda/tensor_attention.hpp, of values of 16 bits on CUDA devices
  cudnn,        ///< NVIDIA's library, kernels/cuda/cudnn_attention.hpp, of values of 16 bits on CUDA devices
  wgmma,        ///< the same by products of warpgroups, on devices of compute capability 9.0
};

/// In the order of the enumerators.
inline constexpr std::array<std::string_view, 4> attention_provider_names{"flash", "tensor_cores", "cudnn", "wgmma"};

constexpr std::string_view to_string(AttentionProvider provider) {
  return attention_provider_names[static_cast<std::size_t>(provider)];
}

/// Instead of a provider: the first of a fixed order that this build has and that can compute it.
inline constexpr std::string_view attention_automatic = "auto";

/// Of this build, in the order of "auto". flash can compute everything, so "auto" never reaches those behind it.
std::span<AttentionProvider const> built_attention_providers();

/// What a call asks of its provider.
struct AttentionNeed {
  Index batch, sequence, heads, head_size;
  Storage storage;    ///< of qkv, out and their gradients
  bool drops = false; ///< whether there is dropout
};

/// Why the provider, in a build that has it, cannot compute it; empty if it can.
std::string attention_problem(AttentionProvider provider, AttentionNeed const& need);

/// The provider of that name, or of "auto".
/// \param[in] built  of which build; in the order of "auto"
/// \throws InputError  if the build does not have it (the message lists those that it has), or if it cannot compute it
AttentionProvider resolve_attention_provider(std::string_view name, AttentionNeed const& need,
                                             std::span<AttentionProvider const> built = built_attention_providers());

enum class AttentionPass { forward, backward };

/// A kernel as it declares itself: the phase is attention.
struct AttentionKernel {
  char const* name; ///< its label behind "trainstone::"
  std::uint64_t flops;
  std::uint64_t bytes;
};

/// The kernels of a call, in the order in which they start.
std::vector<AttentionKernel> attention_kernels(AttentionProvider provider, AttentionPass pass,
                                               AttentionNeed const& need);

/// Whether calls need scratch, and how many fp32 numbers of it a call needs.
bool needs_attention_scratch(AttentionProvider provider, AttentionPass pass);
Index attention_scratch(AttentionProvider provider, AttentionPass pass, AttentionNeed const& need);

} // namespace trainstone
