#pragma once

// Brings one micro-batch to where the kernels read it: asks a BatchSource for the tokens, sorts the rows by token for
// the embedding's gradient, copies all to the device arrays that it owns. Does not know which samples a rank gets.

#include "core/memory.hpp"
#include "model/gpt.hpp"

#include <functional>
#include <span>
#include <utility>

namespace trainstone {

/// Fills inputs and targets (micro T each) of micro-batch v of the global batch `batch` (from 0).
using BatchSource = std::function<void(std::int64_t batch, Index micro_batch, std::span<std::int32_t> inputs,
                                       std::span<std::int32_t> targets)>;

/// An array on the device and the place where the host fills it: the same memory where the host can reach it.
struct Mirrored {
  explicit Mirrored(Vector<std::int32_t> view) : device(view), host(Kokkos::create_mirror_view(view)) {}
  std::span<std::int32_t> values() const { return {host.data(), host.extent(0)}; }

  Vector<std::int32_t> device;
  decltype(Kokkos::create_mirror_view(std::declval<Vector<std::int32_t>>())) host;
};

class BatchLoader {
public:
  /// Takes its part of data_plan() from `arena`.
  BatchLoader(MicroBatchShape shape, Index vocab, Arena& arena);

  /// The Views stay valid, their content until the next call. Complete on return.
  MicroBatch load(ExecutionSpace const& exec, BatchSource const& source, std::int64_t batch, Index micro_batch);

private:
  Index m_vocab;
  Mirrored m_tokens, m_targets, m_order, m_begin, m_bucket_token;
};

} // namespace trainstone
