#pragma once

// The tensors that the parts of a model write and read for one micro-batch, as plain values: names, extents, types, and
// the plan of their memory. What is in the plan is what the parts' description writes (part_kernels.hpp). No Kokkos;
// the memory is in model/activations.hpp.

#include "core/memory_plan.hpp"
#include "model/config.hpp"

#include <array>
#include <cstddef>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace trainstone {

/// Rows of a micro-batch: `batch` sequences of `sequence` tokens.
struct MicroBatchShape {
  Index batch;
  Index sequence;
  Index rows() const { return batch * sequence; }
};

/// Outside of products: the positions of all samples that this rank has. All, unless ranks share them.
MicroBatchShape own_rows(MicroBatchShape shape, GptOptions const& options);
/// The first of these positions.
Index first_position(MicroBatchShape shape, GptOptions const& options);

/// What a slice of a part in training asks of attention's provider. \param[in] values  the type of activations
AttentionNeed attention_need(GptConfig const& config, MicroBatchShape shape, Storage values,
                             GptOptions const& options = {});

/// In the order of their memory. N = B T rows, C channels, or those of this rank, if ranks share the features of the
/// residual stream: then all but 3C, 4C and heads are of these. Of what slices cut, each slice has a matrix of its own,
/// with its share of the heads, of the hidden channels, or of the vocabulary; extents below are of the whole. If ranks
/// share positions, (P, C) and (P) are the rank's own rows. Else P is N.
enum class Activation {
  input,          ///< (P, C) residual stream that a chunk of a pipeline's stage receives
  embedded,       ///< (P, C)
  embedded_mask,  ///< (P, C); masks are there if they are kept
  ln1,            ///< (P, C), or (N, C) if what was gathered is kept; every block has its own from here on
  ln1_mean,       ///< (P)
  ln1_rstd,       ///< (P)
  qkv,            ///< (N, 3C)
  probabilities,  ///< (B NH T, T) of materialised attention
  log_sum_exp,    ///< (B NH T) of flash attention
  attention_mask, ///< (B NH T, T) of materialised attention
  attention,      ///< (N, C) heads side by side
  middle,         ///< (P, C) residual stream after attention
  ln2,            ///< as ln1
  ln2_mean,       ///< (P)
  ln2_rstd,       ///< (P)
  fc,             ///< (N, 4C) biased, before GELU
  gelu,           ///< (N, 4C)
  output,         ///< (P, C) residual stream after the block
  attproj_mask,   ///< (P, C)
  fcproj_mask,    ///< (P, C); the last of a block
  lnf,            ///< (N, C): what was gathered is kept
  lnf_mean,       ///< (P)
  lnf_rstd,       ///< (P)
  logits,         ///< (N, Vp); the loss turns them into their gradient
  losses,         ///< (N)
  loss_maximum,   ///< (N) of the logits, over slices; from here to loss_sums with slices only, of one chunk of rows
  loss_sums,      ///< (slices here, 2N) fp64: of the powers, and the target's logit
  norm_sums,      ///< (blocks, 2C) fp32: gradients of a norm by block of positions; as many blocks as the model has
                  ///< slices, if they divide the positions, else one; the blocks of this rank's positions; with slices
                  ///< only
  feature_sums,   ///< (N, 2) fp64, of a norm over the features here; where ranks share features only
  partial,        ///< (N, C) several: sums of some slices; with slices only
  gathered,       ///< (N, C) the rows of all ranks that share positions, for a product
  gathered_again, ///< (N, C) the same of a norm, in backward
  normed,         ///< (P, C) a norm, where the gathered one is kept
  branch,         ///< (P, C) what a part adds to the stream, forward; its gradient, backward
  d_stream,       ///< (P, C) gradient of the residual stream, handed from part to part
  d_qkv,          ///< (N, 3C)
  scratch,        ///< fp32, of the provider of flash attention, if a pass needs it; one slice after the other uses it
  d_fc,           ///< (N, 4C); the last one with memory of its own
  stream,         ///< (P, C) that a part begins with: `embedded`, `input`, or `output` of the block before
  d_attention,    ///< (N, C) in the memory of d_fc, which only mlp uses
};

inline constexpr int activation_kinds = static_cast<int>(Activation::stream);

constexpr bool is_of_block(Activation what) { return what >= Activation::ln1 && what <= Activation::fcproj_mask; }
constexpr bool is_mask(Activation what) {
  return what == Activation::embedded_mask || what == Activation::attention_mask || what == Activation::attproj_mask ||
         what == Activation::fcproj_mask;
}
/// Whether all parts write it, one after the other.
constexpr bool is_work_space(Activation what) { return what >= Activation::norm_sums; }
/// Whether each slice has a matrix of its own.
constexpr bool is_cut(Activation what) {
  switch (what) {
  case Activation::qkv:
  case Activation::probabilities:
  case Activation::log_sum_exp:
  case Activation::attention_mask:
  case Activation::attention:
  case Activation::fc:
  case Activation::gelu:
  case Activation::logits:
  case Activation::d_qkv:
  case Activation::d_fc:
  case Activation::d_attention: return true;
  default: return false;
  }
}
/// Whether it holds fp64 numbers.
constexpr bool is_fp64(Activation what) { return what == Activation::loss_sums || what == Activation::feature_sums; }
/// Whether it holds fp32 numbers, whatever parameters are stored in.
constexpr bool is_statistic(Activation what) {
  switch (what) {
  case Activation::ln1_mean:
  case Activation::ln1_rstd:
  case Activation::log_sum_exp:
  case Activation::ln2_mean:
  case Activation::ln2_rstd:
  case Activation::lnf_mean:
  case Activation::lnf_rstd:
  case Activation::losses:
  case Activation::scratch:
  case Activation::loss_maximum:
  case Activation::norm_sums: return true;
  default: return false;
  }
}

/// How many matrices of it a rank has in one place: slices, or partial sums.
Index matrices_of(Activation what, GptOptions const& options, Storage values);
/// Whether sums over slices have memory of their own, because their type or their rows are not those of what they
/// become.
bool sums_lie_apart(GptOptions const& options, Storage values);
/// The type of its numbers; of some fp64, and of masks bytes, which are none of these types.
Storage storage_of(Activation what, GptOptions const& options, Storage values);

struct Extents {
  Index rows;
  Index columns;
  Index elements() const { return rows * columns; }
};

/// Of one slice, if slices cut it. Statistics have one column. Logits are of one chunk of rows.
/// \param[in] values  the type of activations
Extents extents_of(Activation what, GptConfig const& config, MicroBatchShape shape, Storage values,
                   GptOptions const& options = {});

/// How many copies there are of what a pipeline's stage has several times (parallel/pipeline/stage_program.hpp).
/// Without a pipeline, there is one slot and one gradient. A slot is used by one chunk at a time, so the blocks of
/// different chunks share its memory.
struct ActivationCopies {
  Index slots = 1;     ///< of what chunks keep of a micro-batch for backward
  Index inputs = 0;    ///< of the residual stream that a chunk receives
  Index gradients = 1; ///< of the gradient of the residual stream

  bool operator==(ActivationCopies const&) const = default;
};

/// The copies that a part works on.
struct ActivationBuffers {
  Index slot = 0;
  Index input = 0;
  Index gradient = 0;

  bool operator==(ActivationBuffers const&) const = default;
};

/// An activation's place in memory.
struct PlacedActivation {
  static constexpr Index of_model = -1;   ///< it lies there once
  static constexpr Index recomputed = -2; ///< once for all blocks that compute it again

  Activation what;
  Index block;      ///< whose it is, or one of the above; of the blocks of chunks that take turns, the first one
  Index copy = 0;   ///< the slot, the input or the gradient, if it is a part of one
  Index number = 0; ///< among its matrices there

  bool operator==(PlacedActivation const&) const = default;
};

/// "logits", "block 3 qkv", "recomputed qkv": without the copy
std::string to_string(PlacedActivation const& placed);

/// In which memory the activations lie that parts name.
class ActivationPlaces {
public:
  ActivationPlaces() = default;
  /// Of the parts of a stage.
  ActivationPlaces(ModelStage stage, GptOptions const& options, ActivationCopies const& copies = {});

  ModelStage const& stage() const { return m_stage; }
  ActivationCopies const& copies() const { return m_copies; }

  /// \param[in] block   the part's; of head, the number of the model's blocks
  /// \param[in] number  of the matrix, of several
  /// \throws Error if the stage has neither the block nor the copy
  PlacedActivation operator()(Activation what, Index block, ActivationBuffers const& buffers = {},
                              Index number = 0) const;
  /// Where a chunk without head leaves the residual stream: `output` of its last block, or `embedded`; of slot 0.
  /// \throws Error if the chunk has neither block nor embed
  PlacedActivation chunk_output(Index chunk) const;
  /// All activations with memory, in the order of their memory: the inputs, what the parts write, and the losses. Of
  /// several matrices each one.
  std::vector<PlacedActivation> all(Storage values) const;
  /// "slot 1 block 3 qkv", "gradient 0 d_stream", "input 2": the copy is named if there are several. "block 3 qkv,
  /// slice 1", "partial 0".
  std::string name(PlacedActivation const& placed) const;

private:
  using Flags = std::array<bool, activation_kinds>;

  struct PlacedBlock {
    Index place;                             ///< PlacedActivation::block of what it keeps
    PlacedActivation stream;                 ///< that it begins with
    std::shared_ptr<Flags const> recomputed; ///< what it computes again
  };
  /// In a slot: of the first blocks of all chunks, of the second ones, and so on.
  struct SharedPlace {
    Index block;  ///< the first of these blocks
    Flags unused; ///< what all of them compute again
  };

  std::shared_ptr<Flags const> const& way(Recompute how, GptOptions const& options);
  void add_block(Index block, std::size_t position, PlacedActivation const& stream, GptOptions const& options);
  std::size_t index_of(Index block) const;
  PlacedActivation place_of(Activation what, Index block) const;

  ModelStage m_stage;
  ActivationCopies m_copies;
  GptOptions m_options;
  std::set<Activation> m_written;
  std::map<Recompute, std::shared_ptr<Flags const>> m_ways; ///< that blocks have, with what they compute again
  std::vector<PlacedBlock> m_blocks;                        ///< of the stage, in order
  std::vector<SharedPlace> m_shared;
  std::vector<PlacedActivation> m_chunk_ends; ///< by chunk, the residual stream behind its blocks
};

/// Which activations: those that ranks of a tensor group bring together (SliceExchange of part_lists.hpp), which may
/// share the memory; all others.
enum class ActivationSet { all, exchanged, own };

/// Knows which activations are exchanged.
class ExchangedActivations {
public:
  /// \param[in] values  the type of parameters
  ExchangedActivations(GptOptions const& options, Storage values);
  /// Whether the activation is one of the set.
  bool has(ActivationSet set, PlacedActivation const& placed) const;

private:
  std::vector<PlacedActivation> m_exchanged;
};

/// The activation plan: every tensor with its bytes, in arena order.
std::vector<PlannedTensor> activation_plan(GptConfig const& config, MicroBatchShape shape,
                                           Storage storage = Storage::fp32, GptOptions const& options = {});
/// Of the parts of a stage.
std::vector<PlannedTensor> activation_plan(GptConfig const& config, MicroBatchShape shape, Storage storage,
                                           GptOptions const& options, ModelStage const& stage,
                                           ActivationCopies const& copies = {}, ActivationSet set = ActivationSet::all);
/// The sum of their bytes, without their names, which take most of the time.
std::uint64_t activation_bytes(GptConfig const& config, MicroBatchShape shape, Storage storage,
                               GptOptions const& options, ModelStage const& stage, ActivationCopies const& copies,
                               ActivationSet set);

} // namespace trainstone
