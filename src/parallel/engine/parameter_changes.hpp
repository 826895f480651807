#pragma once

// How far parameters have moved from their initial values, by kind of tensor: sixteen numbers that show what an
// optimizer did. Weight decay, epsilon and a tensor that is never updated show here, and hardly in a loss. No second
// model is needed: the initial values are computed again from their counters. Promises: the same numbers for every
// strategy and number of ranks, but for the order of sums.

#include "comm/execution/communicator.hpp"
#include "comm/schedule/counters.hpp"
#include "parallel/engine/sharded_engine.hpp"

#include <array>
#include <cstdint>

namespace trainstone {

/// The mean of |parameter - its initial value| over all elements of the tensors of each kind, in the order of Tensor.
/// The mean of wte leaves out padding. The mean of qkvb leaves out the bias of keys, whose changes are rounding alone.
/// For 16-bit parameters the master copy is used.
using ParameterChanges = std::array<double, tensor_kinds>;

/// Computes the changes of parameters that began with the values of the seed. Collective over `world`; waits.
/// \param[in] sum  room for one value
/// Sends parameter_changes_traffic(), starts parameter_changes_launches() kernels.
ParameterChanges parameter_changes(ExecutionSpace const& exec, Communicator& world, ShardedEngine const& engine,
                                   std::uint64_t seed, Vector<double> sum);

/// The same means of |gradient|, from the summed gradients of fp32 that the engine holds after gradient_norm().
/// Collective over `world`; waits. Costs what parameter_changes() costs.
ParameterChanges gradient_sizes(ExecutionSpace const& exec, Communicator& world, ShardedEngine const& engine,
                                Vector<double> sum);

Traffic parameter_changes_traffic(StateLayout const& layout);
std::uint64_t parameter_changes_launches(ShardPlan const& plan, ParameterTable const& table);

} // namespace trainstone
