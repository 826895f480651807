#pragma once

// Finds where a value that is not finite comes from, after a loss or a norm has shown one. A step has no time to check
// every output, so a micro-batch runs forward once more.

#include "comm/execution/communicator.hpp"
#include "core/stored.hpp"
#include "model/config.hpp"
#include "model/part.hpp"
#include "parallel/engine/sharded_engine.hpp"

#include <functional>
#include <span>
#include <string>

namespace trainstone {

/// Where a diagnosis searches. `count` is scratch of one element.
struct DiagnosedTraining {
  ExecutionSpace const& exec;
  Communicator& communicator;
  ShardedEngine& engine;
  GptConfig const& model;
  Vector<std::int64_t> count;
};

/// Looks at the output of a part, when its forward has run.
using LookAtOutput = std::function<void(Part, StoredMatrix output)>;

/// Names the first part of the model whose output is not finite. If all outputs are finite, names a group whose
/// gradient is not. The same text on all ranks. Collective; waits.
/// \param[in] losses   of this rank's micro-batches, as many on all ranks; 0 on a stage without head
/// \param[in] forward  runs a micro-batch of this rank forward once more, and lets `look` see every output here; all
///                     ranks call it
std::string describe_non_finite(DiagnosedTraining const& training, std::span<double const> losses,
                                std::function<void(Index micro_batch, LookAtOutput const& look)> const& forward);

/// Whether one of the values is not finite. Waits. \param[in] count  scratch of one element
bool has_non_finite(ExecutionSpace const& exec, ConstStoredVector values, Vector<std::int64_t> count);

} // namespace trainstone
