#pragma once

// The arithmetic of a micro-batch as a value: its matrix products with their extents, its number of floating-point
// operations and its number of kernels. Predictions and the GEMM scratch come from here. Computes nothing.

#include "core/write.hpp"
#include "kernels/gemm_shape.hpp"
#include "model/activation_plan.hpp"
#include "model/config.hpp"

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace trainstone {

struct GemmUse {
  std::string name; ///< "qkv forward"
  GemmShape shape;
  std::int64_t count; ///< per micro-batch
};

/// The products of forward, and those of backward. `mode` is how backward treats weight gradients: overwrite in the
/// first micro-batch of a step, add in the others.
std::vector<GemmUse> forward_gemms(GptConfig const& config, MicroBatchShape shape, ModelStorage storage = {});
std::vector<GemmUse> backward_gemms(GptConfig const& config, MicroBatchShape shape, Write mode,
                                    ModelStorage storage = {});

/// All these products, with both modes: every product that a rank of a run may have to compute.
std::set<GemmShape> gemm_shapes(GptConfig const& config, MicroBatchShape shape, ModelStorage storage = {});

/// GEMM and attention operations that are executed: padded vocabulary, the causal half of attention, or the tiles of
/// flash attention.
struct ModelFlops {
  std::uint64_t gemm = 0;
  std::uint64_t attention = 0;
  std::uint64_t total() const { return gemm + attention; }
};

/// One micro-batch: forward alone, and forward and backward.
ModelFlops evaluation_flops(GptConfig const& config, MicroBatchShape shape, GptOptions const& options = {});
ModelFlops training_flops(GptConfig const& config, MicroBatchShape shape, GptOptions const& options = {});

/// Kernels that one micro-batch starts, losses included, their sum not: forward alone, and forward and backward.
/// `mode` as above; providers may start several kernels for a product.
std::uint64_t evaluation_launches(GptConfig const& config, MicroBatchShape shape, GemmChoice const& gemm,
                                  ModelStorage storage);
std::uint64_t training_launches(GptConfig const& config, MicroBatchShape shape, GptOptions const& options, Write mode,
                                GemmChoice const& gemm, ModelStorage storage);

/// The largest scratch that any product above needs from its provider.
std::uint64_t gemm_scratch_bytes(GptConfig const& config, MicroBatchShape shape, GemmChoice const& gemm,
                                 ModelStorage storage = {});

} // namespace trainstone
