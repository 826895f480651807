#include "train/data/batches.hpp"

#include "core/error.hpp"
#include "train/data/sample_order.hpp"

#include <algorithm>
#include <cmath>

namespace trainstone {

namespace {

SampleRange all_samples(TokenSource const& source, Index sequence) {
  TRAINSTONE_REQUIRE_INPUT(sequence >= 1, "data.sequence is {}: must be at least 1", sequence);
  return {&source, sequence, 0, (source.size() - 1) / sequence};
}

/// Calls read_row(row, inputs of the row, targets of the row) for every row of a micro-batch.
template <class ReadRow>
void for_each_row(Index micro, Index sequence, std::span<std::int32_t> inputs, std::span<std::int32_t> targets,
                  ReadRow const& read_row) {
  auto const row_size = static_cast<std::size_t>(sequence);
  auto const rows = static_cast<std::size_t>(micro);
  TRAINSTONE_REQUIRE(inputs.size() == rows * row_size && targets.size() == rows * row_size,
                     "a micro-batch of {} x {} tokens into arrays of {} and {}", micro, sequence, inputs.size(),
                     targets.size());
  for (std::size_t row = 0; row < rows; ++row) {
    read_row(static_cast<Index>(row), inputs.subspan(row * row_size, row_size),
             targets.subspan(row * row_size, row_size));
  }
}

void require_micro_batch(BatchConfig const& batch, Index micro_batch) {
  TRAINSTONE_REQUIRE(batch.micro >= 1 && batch.global >= 1 && batch.global % batch.micro == 0 && micro_batch >= 0 &&
                         micro_batch < batch.global / batch.micro,
                     "micro-batch {} of a global batch of {} in micro-batches of {}", micro_batch, batch.global,
                     batch.micro);
}

} // namespace

void SampleRange::read(Index i, std::span<std::int32_t> inputs, std::span<std::int32_t> targets) const {
  auto const length = static_cast<std::size_t>(sequence);
  TRAINSTONE_REQUIRE(0 <= i && i < count, "sample {} of {}", i, count);
  TRAINSTONE_REQUIRE(inputs.size() == length && targets.size() == length,
                     "a sample of {} tokens into arrays of {} and {}", sequence, inputs.size(), targets.size());
  Index const begin = (first + i) * sequence;
  source->read(begin, inputs);
  std::ranges::copy(inputs.subspan(1), targets.begin());
  source->read(begin + sequence, targets.last(1));
}

SampleSplit split_by_fraction(TokenSource const& source, Index sequence, double fraction) {
  TRAINSTONE_REQUIRE_INPUT(fraction >= 0 && fraction < 1,
                           "data.validation_fraction is {}: must be at least 0 and below 1", fraction);
  SampleRange const all = all_samples(source, sequence);
  Index const held_out = static_cast<Index>(std::floor(fraction * static_cast<double>(all.count)));
  Index const training = all.count - held_out;
  TRAINSTONE_REQUIRE_INPUT(training >= 1, "the data has {} tokens, but a sample of data.sequence = {} takes {}",
                           source.size(), sequence, sequence + 1);
  TRAINSTONE_REQUIRE_INPUT(held_out >= 1 || fraction == 0,
                           "data.validation_fraction = {} of {} samples ({} tokens in sequences of {}) holds out none: "
                           "at least {:.3g} would",
                           fraction, all.count, source.size(), sequence, 1.0 / static_cast<double>(all.count));
  return {{&source, sequence, 0, training}, {&source, sequence, training, held_out}};
}

SampleSplit split_by_source(TokenSource const& training, TokenSource const& validation, Index sequence) {
  SampleSplit const split = {all_samples(training, sequence), all_samples(validation, sequence)};
  TRAINSTONE_REQUIRE_INPUT(split.training.count >= 1,
                           "the data has {} tokens, but a sample of data.sequence = {} takes {}", training.size(),
                           sequence, sequence + 1);
  TRAINSTONE_REQUIRE_INPUT(split.held_out.count >= 1,
                           "the validation data has {} tokens, but a sample of data.sequence = {} takes {}",
                           validation.size(), sequence, sequence + 1);
  return split;
}

void read_training_batch(SampleRange const& samples, std::uint64_t seed, BatchConfig const& batch, std::int64_t step,
                         Index micro_batch, std::span<std::int32_t> inputs, std::span<std::int32_t> targets) {
  require_micro_batch(batch, micro_batch);
  for_each_row(batch.micro, samples.sequence, inputs, targets,
               [&](Index row, std::span<std::int32_t> row_inputs, std::span<std::int32_t> row_targets) {
                 Index const sample =
                     training_sample(seed, samples.count, step, batch.global, micro_batch * batch.micro + row);
                 samples.read(sample, row_inputs, row_targets);
               });
}

Index validation_batches(SampleRange const& held_out, BatchConfig const& batch, Index requested) {
  Index const available = held_out.count / batch.global;
  TRAINSTONE_REQUIRE_INPUT(
      available >= 1 && requested <= available,
      "{} validation batches of batch.global = {} samples need {} held-out samples of {} tokens, but "
      "there are {}: hold out more, or make the batch smaller",
      std::max<Index>(requested, 1), batch.global, std::max<Index>(requested, 1) * batch.global, held_out.sequence,
      held_out.count);
  return requested == 0 ? available : requested;
}

void read_validation_batch(SampleRange const& held_out, BatchConfig const& batch, Index number, Index micro_batch,
                           std::span<std::int32_t> inputs, std::span<std::int32_t> targets) {
  require_micro_batch(batch, micro_batch);
  Index const begin = number * batch.global + micro_batch * batch.micro;
  for_each_row(batch.micro, held_out.sequence, inputs, targets,
               [&](Index row, std::span<std::int32_t> row_inputs, std::span<std::int32_t> row_targets) {
                 held_out.read(begin + row, row_inputs, row_targets);
               });
}

} // namespace trainstone
