#pragma once

// Activations of one micro-batch: where the tensors of the plan (activation_plan.hpp) lie. The prediction cannot differ
// from what is allocated, because both come from one list. Statistics and losses are fp32 whatever the others are
// stored in. The memory is the caller's.

#include "core/memory.hpp"
#include "core/stored.hpp"
#include "core/views.hpp"
#include "kernels/dropout.hpp"
#include "model/activation_plan.hpp"
#include "model/config.hpp"

#include <array>
#include <cstddef>
#include <variant>
#include <vector>

namespace trainstone {

/// What an exchange between tensor ranks works on.
using ExchangedVector = std::variant<StoredVector, Vector<double>>;

class Activations {
public:
  /// Cuts the tensors of activation_plan(config, shape, storage, options) out of `arena`, in the same order.
  Activations(GptConfig const& config, MicroBatchShape shape, Arena& arena, Storage storage = Storage::fp32,
              GptOptions const& options = {});
  /// Of the parts of a stage.
  /// \param[in] exchanged  memory of ActivationSet::exchanged; null: it lies with the others
  Activations(GptConfig const& config, MicroBatchShape shape, Arena& arena, Storage storage, GptOptions const& options,
              ModelStage const& stage, ActivationCopies const& copies = {}, Arena* exchanged = nullptr);

  /// The type of all but statistics and masks.
  Storage storage() const { return m_storage; }

  ActivationPlaces const& places() const { return m_places; }

  /// What is neither a statistic nor a mask. `block` is not looked at for what is of no block. Activation::stream of a
  /// block is what the block begins with; of block `layers`, what the head begins with.
  /// \param[in] buffers  the copy, of what is there several times
  /// \param[in] number   of the matrix, of several: a slice that is here, or a partial sum
  StoredMatrix matrix(Activation what, Index block, ActivationBuffers const& buffers = {}, Index number = 0) const;
  Vector<float> statistics(Activation what, Index block, ActivationBuffers const& buffers = {}, Index number = 0) const;
  /// What is_fp64(): loss_sums of all slices that are here (slices, 2 N), feature_sums (N, 2).
  Matrix<double> doubles(Activation what) const;
  /// Empty if it is not kept.
  Matrix<MaskByte> mask(Activation what, Index block, ActivationBuffers const& buffers = {}, Index number = 0) const;

private:
  void* memory(Activation what, Index block, ActivationBuffers const& buffers, Index number) const;
  Index memory_copies() const; ///< places for what is there several times
  std::size_t row_of(PlacedActivation const& placed) const;
  Extents extents(Activation what) const { return extents_of(what, m_config, m_shape, m_storage, m_options); }

  GptConfig m_config;
  MicroBatchShape m_shape;
  GptOptions m_options;
  Storage m_storage;
  ActivationPlaces m_places;
  /// By number of the matrix, then by copy, then by the place's block, from recomputed on; null: none.
  std::vector<std::array<void*, activation_kinds>> m_memory;
};

} // namespace trainstone
