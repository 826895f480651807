#pragma once

// Loads the micro-batches of a step into the memory that kernels read. Asks a BatchSource for the tokens, sorts the
// rows by token for the gradient of the embedding, and copies everything to the device arrays that it owns. Does not
// know which samples a rank gets.

#include "comm/execution/buffers.hpp"
#include "core/memory.hpp"
#include "model/gpt.hpp"

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

namespace trainstone {

/// Fills inputs and targets (micro T each) of micro-batch v of the global batch `batch` (from 0).
using BatchSource = std::function<void(std::int64_t batch, Index micro_batch, std::span<std::int32_t> inputs,
                                       std::span<std::int32_t> targets)>;

/// The sources of a run's tokens.
struct TrainingBatches {
  BatchSource training;
  BatchSource validation;              ///< may be empty
  std::int64_t validation_batches = 0; ///< global batches of one validation
};

/// An array for kernels and the memory in which the host fills it: a mirror in pinned memory, or the array itself if
/// the host reaches it.
class Mirrored {
public:
  /// Takes the next elements of `data`, and the next bytes of `mirrors` as mirror, if `mirrors` has memory.
  Mirrored(Arena& data, PinnedMemory& mirrors, char const* label, Index count);

  Vector<std::int32_t> array() const { return m_array; }
  std::span<std::int32_t> values() const { return m_values; }
  /// Elements [begin, begin + count).
  Mirrored part(Index begin, Index count) const;
  /// Enqueued on exec: the host must leave the values alone until exec is fenced.
  void copy_to_device(ExecutionSpace const& exec) const;

private:
  Mirrored(Vector<std::int32_t> array, std::span<std::int32_t> values) : m_array(array), m_values(values) {}

  Vector<std::int32_t> m_array;
  std::span<std::int32_t> m_values;
};

class BatchLoader {
public:
  /// With room for this number of rows, in at most so many micro-batches. Takes its part of data_plan() from `data` and
  /// its part of mirror_plan() from `mirrors`. If the host fills `data` itself, `mirrors` has no memory.
  BatchLoader(Index rows, Index micro_batches, Index vocab, Arena& data, PinnedMemory& mirrors);

  /// From now on loaded batches may be overwritten. Waits for the work that exec has enqueued.
  void begin(ExecutionSpace const& exec) const;
  /// Loads micro-batch `micro_batch` of all ranks, of so many rows, as the `own`-th of this rank; call it once for each
  /// after begin(), all with as many rows. Work that is enqueued on exec from now on sees the contents of the Views.
  MicroBatch load(ExecutionSpace const& exec, BatchSource const& source, std::int64_t batch, Index micro_batch,
                  Index own, Index rows);

private:
  Index m_vocab;
  Mirrored m_tokens, m_targets, m_order, m_begin, m_bucket_token; ///< of micro-batch after micro-batch
};

} // namespace trainstone
