#pragma once

// Samples and batches. Owns how a source is cut into samples, which samples are held out, and which samples make up
// a micro-batch of a training step or of a validation. Promises that the samples of step s, and those of every
// validation, are the same for any number of ranks; only who reads them differs. Fills host arrays that the caller
// owns; copies nothing to devices and does not communicate.

#include "core/views.hpp"
#include "train/data/token_source.hpp"
#include "train/plan/config.hpp"

#include <cstdint>
#include <span>

namespace trainstone {

/// Consecutive samples of a source. Sample i of a source is its tokens [iT, iT + T], T = sequence: T inputs, and the
/// same shifted by one as targets, so a source of S tokens has (S - 1) / T samples.
struct SampleRange {
  TokenSource const* source = nullptr; ///< must outlive the range
  Index sequence = 0;
  Index first = 0; ///< number of the range's first sample in the source
  Index count = 0;

  /// Reads sample i of the range. inputs (T), targets (T).
  void read(Index i, std::span<std::int32_t> inputs, std::span<std::int32_t> targets) const;
};

struct SampleSplit {
  SampleRange training;
  SampleRange held_out; ///< count 0: nothing is held out
};

/// Holds out the last floor(fraction * samples) samples of the source; fraction 0: none.
/// \throws InputError if fraction is outside [0, 1), if no training sample is left, or if fraction > 0 holds out none
SampleSplit split_by_fraction(TokenSource const& source, Index sequence, double fraction);

/// Trains on all samples of `training` and holds out all of `validation`.
/// \throws InputError if either has no sample
SampleSplit split_by_source(TokenSource const& training, TokenSource const& validation, Index sequence);

/// Reads micro-batch v of training step `step` (from 0): rows v * micro .. (v + 1) * micro of the step's global batch.
/// inputs, targets (micro * T), sample after sample.
void read_training_batch(SampleRange const& samples, std::uint64_t seed, BatchConfig const& batch, std::int64_t step,
                         Index micro_batch, std::span<std::int32_t> inputs, std::span<std::int32_t> targets);

/// The number of global batches of one validation: `requested`, or, if that is 0, as many as the held-out samples
/// fill. A validation takes whole global batches so that ranks share it evenly and its mean is over the same samples
/// for any number of ranks; the remaining held-out samples are not used.
/// \throws InputError with the numbers if the held-out samples do not fill them, or not even one
Index validation_batches(SampleRange const& held_out, BatchConfig const& batch, Index requested);

/// Reads micro-batch v of global batch `number` of a validation: the held-out samples in their order, not shuffled,
/// from sample number * global + v * micro on. The same at every validation. inputs, targets (micro * T).
void read_validation_batch(SampleRange const& held_out, BatchConfig const& batch, Index number, Index micro_batch,
                           std::span<std::int32_t> inputs, std::span<std::int32_t> targets);

} // namespace trainstone
