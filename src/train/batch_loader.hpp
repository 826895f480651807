#pragma once

// Brings the micro-batches of a step to where the kernels read them: asks a BatchSource for the tokens, sorts the rows
// by token for the embedding's gradient, copies all to the device arrays that it owns. Does not know which samples a
// rank gets.

#include "core/memory.hpp"
#include "model/gpt.hpp"

#include <functional>
#include <span>
#include <utility>
#include <vector>

namespace trainstone {

/// Fills inputs and targets (micro T each) of micro-batch v of the global batch `batch` (from 0).
using BatchSource = std::function<void(std::int64_t batch, Index micro_batch, std::span<std::int32_t> inputs,
                                       std::span<std::int32_t> targets)>;

/// An array on the device and the pinned memory where the host fills it: the same memory where the host can reach it.
struct Mirrored {
  explicit Mirrored(Vector<std::int32_t> view)
      : device(view), host(Kokkos::create_mirror_view(Kokkos::WithoutInitializing, PinnedSpace(), view)) {}
  std::span<std::int32_t> values() const { return {host.data(), host.extent(0)}; }
  /// Enqueued on exec: the host must leave its values alone until exec is fenced.
  void copy_to_device(ExecutionSpace const& exec) const { Kokkos::deep_copy(exec, device, host); }

  Vector<std::int32_t> device;
  decltype(Kokkos::create_mirror_view(PinnedSpace(), std::declval<Vector<std::int32_t>>())) host;
};

class BatchLoader {
public:
  /// Room for `turns` micro-batches at a time. Takes its part of data_plan() from `arena`.
  BatchLoader(MicroBatchShape shape, Index turns, Index vocab, Arena& arena);

  /// What was loaded may be overwritten from now on: waits for what exec has enqueued.
  void begin(ExecutionSpace const& exec) const;
  /// Into the room of a turn, once after begin(); the Views' contents are there for what is enqueued on exec from now
  /// on.
  MicroBatch load(ExecutionSpace const& exec, BatchSource const& source, std::int64_t batch, Index micro_batch,
                  Index turn);

private:
  /// Room for a micro-batch.
  struct Room {
    Mirrored tokens, targets, order, begin, bucket_token;
  };

  Index m_vocab;
  std::vector<Room> m_rooms; ///< per turn
};

} // namespace trainstone
