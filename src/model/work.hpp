#pragma once

// The arithmetic of a micro-batch as a value: every kernel with its FLOPs and bytes, by part and pass, and of products
// their extents. Comes from the description of the parts (part_kernels.hpp) and from extents. Predictions, the GEMM
// scratch and the checks of a run use it. Computes nothing.

#include "core/counters.hpp"
#include "core/write.hpp"
#include "kernels/gemm/gemm_shape.hpp"
#include "model/activation_plan.hpp"
#include "model/config.hpp"
#include "model/part.hpp"
#include "model/part_kernels.hpp"

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace trainstone {

struct KernelWork {
  Phase phase = Phase::other;
  std::uint64_t flops = 0;
  std::uint64_t bytes = 0;
};

/// A kernel of a part and pass, or a matrix product, which may take several kernels.
struct KernelUse {
  std::string name; ///< of a product "qkv forward", else the kernel's label behind "trainstone::"
  PartKind part;    ///< of the loss: head
  Pass pass;
  KernelWork work; ///< of a product alone, without its epilogue
  std::optional<GemmShape> product = {};
  std::int64_t count = 1; ///< per micro-batch: the number of parts of the kind
};

/// What one instruction computes.
struct PartPass {
  PartKind part; ///< of the loss: head
  Pass pass;
  Write mode = Write::overwrite;         ///< how backward treats gradients of parameters
  bool trains = true;                    ///< or evaluates
  Recompute recompute = Recompute::none; ///< how the part's block does
  auto operator<=>(PartPass const&) const = default;
};

/// Its kernels for one micro-batch, in the order in which they start.
std::vector<KernelUse> part_kernels(PartPass const& what, GptConfig const& config, MicroBatchShape shape,
                                    GptOptions const& options = {}, ModelStorage storage = {});

/// The kernels of one micro-batch in the order in which they start, those of a block once: forward and loss of an
/// evaluation, or forward, loss and backward of a training. `mode` is how backward treats gradients of parameters:
/// overwrite in the first micro-batch of a step, add in the others. Nothing is computed again.
std::vector<KernelUse> evaluation_kernels(GptConfig const& config, MicroBatchShape shape,
                                          GptOptions const& options = {}, ModelStorage storage = {});
std::vector<KernelUse> training_kernels(GptConfig const& config, MicroBatchShape shape, GptOptions const& options = {},
                                        Write mode = Write::overwrite, ModelStorage storage = {});

/// The kernels that a use starts: of a product its provider's, which has the use's name, those that convert matrices,
/// and those of its epilogue, unless the provider computes it.
std::vector<KernelUse> started_kernels(KernelUse const& use, GemmChoice const& gemm);

struct GemmUse {
  std::string name; ///< "qkv forward"
  GemmShape shape;
  std::int64_t count; ///< per micro-batch
};

/// The products of forward; the products of backward.
std::vector<GemmUse> forward_gemms(GptConfig const& config, MicroBatchShape shape, ModelStorage storage = {},
                                   GptOptions const& options = {});
std::vector<GemmUse> backward_gemms(GptConfig const& config, MicroBatchShape shape, Write mode,
                                    ModelStorage storage = {}, GptOptions const& options = {});

/// All these products, with both modes: every product that a rank of a run may have to compute.
std::set<GemmShape> gemm_shapes(GptConfig const& config, MicroBatchShape shape, ModelStorage storage = {},
                                GptOptions const& options = {});

/// Kernels that the uses start. Providers may start several kernels for a product.
std::uint64_t launches_of(std::vector<KernelUse> const& uses, GemmChoice const& gemm);

/// GEMM and attention operations that are executed: padded vocabulary, the causal half of attention, or the tiles of
/// flash attention.
struct ModelFlops {
  std::uint64_t gemm = 0;
  std::uint64_t attention = 0;
  std::uint64_t total() const { return gemm + attention; }
};

ModelFlops flops_of(std::vector<KernelUse> const& uses);

/// As kernels declare it: each operand is read or written once.
struct PhaseWork {
  std::uint64_t flops = 0;
  std::uint64_t bytes = 0;
  bool operator==(PhaseWork const&) const = default;
};

/// Of all kernels that the uses start.
PerPhase<PhaseWork> work_of(std::vector<KernelUse> const& uses, GemmChoice const& gemm);

/// One micro-batch: forward alone, and forward and backward.
ModelFlops evaluation_flops(GptConfig const& config, MicroBatchShape shape, GptOptions const& options = {});
ModelFlops training_flops(GptConfig const& config, MicroBatchShape shape, GptOptions const& options = {});

/// Kernels that one micro-batch starts, losses included, their sum not: forward alone, and forward and backward.
/// Providers may start several kernels for a product.
std::uint64_t evaluation_launches(GptConfig const& config, MicroBatchShape shape, GemmChoice const& gemm,
                                  ModelStorage storage);
std::uint64_t training_launches(GptConfig const& config, MicroBatchShape shape, GptOptions const& options, Write mode,
                                GemmChoice const& gemm, ModelStorage storage);

/// The largest scratch that any product above needs from its provider.
std::uint64_t gemm_scratch_bytes(GptConfig const& config, MicroBatchShape shape, GemmChoice const& gemm,
                                 ModelStorage storage = {}, GptOptions const& options = {});

} // namespace trainstone
