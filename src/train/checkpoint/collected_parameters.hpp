#pragma once

// Brings the parameters of the whole model to the first rank, part by part, for a file of it. Owns the way from the
// stages of a pipeline to the first rank. No rank holds more than a part beside what it trains with. Its messages are
// not counted, because they belong to no step.

#include "comm/schedule/partition.hpp"
#include "core/index.hpp"
#include "core/views.hpp"
#include "parallel/engine/sharded_engine.hpp"

#include <functional>
#include <span>

namespace trainstone {

/// Elements of a group of the whole model.
using TakeParameters = std::function<void(Index number, Index first, std::span<float const> values)>;

/// On rank 0, calls `take` with the parameters of every group of the whole model, as fp32, without padding. They come
/// in any order. Collective; waits. All ranks come to the end, also if `take` throws. Then the error is thrown again on
/// rank 0. \param[in] room  on rank 0, for the largest part of the first stage
void collect_parameters(ExecutionSpace const& exec, ShardedEngine& engine, std::span<float> room,
                        TakeParameters const& take);

} // namespace trainstone
