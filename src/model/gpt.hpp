#pragma once

// GPT-2: runs forward and backward of every part on one micro-batch. The kernels of a part are described in
// part_kernels.hpp. Owns which memory each of them reads and writes. The memory of parameters, gradients and
// activations is the caller's; this layer neither communicates nor updates.

#include "comm/schedule/partition.hpp"
#include "core/stored.hpp"
#include "core/write.hpp"
#include "kernels/embedding.hpp"
#include "kernels/gemm/gemm.hpp"
#include "model/activations.hpp"
#include "model/parameter_table.hpp"
#include "model/part.hpp"
#include "model/part_kernels.hpp"
#include "model/part_lists.hpp"

#include <optional>

namespace trainstone {

namespace Impl {
struct LaunchedPart;
}

/// One micro-batch as the kernels read it. N = B T rows.
struct MicroBatch {
  Vector<std::int32_t const> tokens;  ///< (N)
  Vector<std::int32_t const> targets; ///< (N)
  TokenBuckets buckets;               ///< of `tokens`; read by embed's backward only
  float gradient_scale = 1;           ///< 1 / (tokens of the global batch)
  Dropout dropout = {};               ///< of this batch, in training; its site is set by every use
  bool operator==(MicroBatch const&) const = default;
};

/// The memory in which backward leaves the gradients of a part's parameters.
struct GradientTarget {
  StoredVector gradients; ///< of the part's unit, as the parameters or in fp32; backward leaves the padding alone
  Write write = Write::overwrite; ///< or add: to the gradients of earlier micro-batches
  /// What embed adds to the gradient of the token table: to these elements, which the caller has set. Empty: to those
  /// in `gradients`. There head has left its part; on a stage without head, the caller has set them to zero before the
  /// first micro-batch, whatever `write` says.
  StoredVector looked_up = {};
};

/// What the loss does with the head's logits.
enum class LossMode {
  training,   ///< losses, and the logits become their gradient
  evaluation, ///< losses only
};

/// Of a stage of a pipeline, the parts of the stage alone. A chunk's parts run forward and backward with the same
/// buffers: between the two, the slot and the input keep what backward reads.
class Gpt {
public:
  /// \param[in] table, gemm   outlive the object
  /// \param[in] activations   of `config`, `shape`, `options` and the table's stage, in the parameters' type
  Gpt(GptConfig const& config, ParameterTable const& table, MicroBatchShape shape, Activations activations, Gemm& gemm,
      GptOptions const& options = {});

  GptConfig const& config() const { return m_config; }
  MicroBatchShape shape() const { return m_shape; }
  /// The type in which parameters and activations are stored.
  Storage storage() const { return m_activations.storage(); }

  // Every pass has pieces (part_pieces of part_kernels.hpp), which run in order. `piece` is the one that runs; without
  // it, all run.

  /// Runs the part's forward on `exec`; returns without fencing. The head ends with the logits.
  /// \param[in] parameters (padded)   of the unit that the part reads
  void forward(ExecutionSpace const& exec, Part part, MicroBatch const& batch, ConstStoredVector parameters,
               std::optional<Index> piece = {}, ActivationBuffers const& buffers = {});

  /// Losses per row, from the logits; in training the logits become gradient_scale times the gradient of the sum. If
  /// the loss is split (GptOptions::loss_chunks), the logits of a chunk of rows are computed first, and in training the
  /// head's backward of a chunk comes before the loss of the next one.
  /// \param[in] parameters (padded)   of the head's unit, if the loss is split; not looked at otherwise
  void loss(ExecutionSpace const& exec, MicroBatch const& batch, LossMode mode, ConstStoredVector parameters = {},
            std::optional<Index> piece = {}, ActivationBuffers const& buffers = {});

  /// Computes again what the part's block has not kept (GptOptions::recompute). Until a part of another block, or of
  /// this block with another slot, runs forward or computes again, the block's backward finds it. Runs on `exec`;
  /// returns without fencing.
  /// \param[in] parameters (padded)   of the unit that the part reads
  void recompute(ExecutionSpace const& exec, Part part, MicroBatch const& batch, ConstStoredVector parameters,
                 std::optional<Index> piece = {}, ActivationBuffers const& buffers = {});

  /// Runs the part's backward on `exec`; returns without fencing. Parts run in reverse order, head first. The head
  /// writes the gradient of root without the position table. Embed completes it, in the same memory, but for what
  /// target.looked_up says. The head overwrites the gradient of the residual stream in its buffer; all other parts
  /// read it there, and blocks leave there the gradient of what they begin with.
  /// \param[in] parameters (padded)   of the unit that the part reads; not looked at by embed
  void backward(ExecutionSpace const& exec, Part part, MicroBatch const& batch, ConstStoredVector parameters,
                GradientTarget const& target, std::optional<Index> piece = {}, ActivationBuffers const& buffers = {});

  /// The output of the part's forward: the residual stream, (N, C), or own rows of it, if ranks share positions; or the
  /// head's logits, (N, Vp); if the loss is split, the head's norm, (N, C).
  StoredMatrix output(Part part, ActivationBuffers const& buffers = {}) const;

  /// What a stage of a pipeline receives and sends, (N, C) each, or own rows. The residual stream that a chunk
  /// without embed begins with is received into an input, and stays there until the chunk's backward.
  StoredMatrix input(Index number) const;
  /// The residual stream behind a chunk without head: the output of its last block, or of embed if it has no block.
  StoredMatrix chunk_output(Index chunk, Index slot) const;
  /// The gradient of the residual stream: of a chunk's output before its backward, of its input afterwards.
  StoredMatrix stream_gradient(Index number) const;

  /// The head's logits, or their gradients, (N, Vp). If the loss is split: of the last chunk, (N / chunks, Vp). Of a
  /// slice that is here, the columns of its tokens.
  StoredMatrix logits(Index slice = 0) const { return m_activations.matrix(Activation::logits, -1, {}, slice); }

  /// What the ranks of a tensor group bring together: the memory in which an exchange works.
  ExchangedVector exchanged(SliceExchange exchange) const;

  /// (N) of the last loss().
  Vector<float> losses() const { return m_activations.statistics(Activation::losses, -1); }

private:
  Impl::LaunchedPart launched(ExecutionSpace const& exec, Part part, MicroBatch const& batch,
                              ActivationBuffers const& buffers) const;
  void run(Pass pass, Impl::LaunchedPart part, std::optional<Index> piece) const;

  GptConfig m_config;
  ParameterTable const* m_table;
  MicroBatchShape m_shape;
  Activations m_activations;
  Gemm* m_gemm;
  GptOptions m_options;
};

/// Fills `values` with the initial values of a group's parameters (padded) in `part`: a function of (seed, parameter)
/// alone, the same on every rank and for any number of ranks; padding is zero. Returns without fencing.
void initialize_parameters(ExecutionSpace const& exec, ParameterTable const& table, Index group, std::uint64_t seed,
                           Range part, Vector<float> values);

/// The tensors of a block, or those outside of blocks (-1), in a flat vector that begins where their unit does. Of a
/// tensor that slices cut, the part in a slice that is here.
template <class T>
class UnitTensors {
public:
  UnitTensors(ParameterTable const& table, Index block, Vector<T> flat)
      : m_table(&table), m_block(block), m_flat(flat) {}

  Vector<T> vector(Tensor tensor, Index slice = 0) const {
    ParameterTensor const& entry = m_table->find(tensor, m_block, slice);
    return Vector<T>(m_flat.data() + m_table->offset_in_unit(entry), static_cast<std::size_t>(entry.size()));
  }
  Matrix<T> matrix(Tensor tensor, Index slice = 0) const {
    ParameterTensor const& entry = m_table->find(tensor, m_block, slice);
    return Matrix<T>(m_flat.data() + m_table->offset_in_unit(entry), static_cast<std::size_t>(entry.rows),
                     static_cast<std::size_t>(entry.columns));
  }

private:
  ParameterTable const* m_table;
  Index m_block;
  Vector<T> m_flat;
};

/// The part of a flat vector that holds `entry`.
template <class T>
Vector<T> vector_of(ParameterTensor const& entry, Vector<T> flat) {
  return Vector<T>(flat.data() + entry.offset, static_cast<std::size_t>(entry.size()));
}

} // namespace trainstone
