#pragma once

// The optimizer's step on this rank's shares. Owns which elements of the shares belong to which tensor, and the
// moments' place. Sums, norms and communication are others'.

#include "core/views.hpp"
#include "parallel/config.hpp"
#include "parallel/shard_plan.hpp"

#include <cstdint>
#include <vector>

namespace trainstone {

/// A tensor's elements within this rank's share of its group.
struct TensorShare {
  Index group;
  Range range;    ///< counted from the share's begin
  bool is_matrix; ///< weight decay "matrices" decays these
};

/// Those that are not empty, in the order of the table.
std::vector<TensorShare> tensor_shares(ShardPlan const& plan, ParameterTable const& table);

/// min(1, clip / (norm + 1e-6)), or 1 without clipping: what gradients are multiplied with.
double clip_factor(OptimizerConfig const& optimizer, double norm);

/// The numbers of one step.
struct UpdateStep {
  double learning_rate;
  double gradient_scale;
  std::int64_t number; ///< from 1
};

/// One kernel per tensor. \param[in] gradient, parameter, first, second  the elements of `share`
void update_share(ExecutionSpace const& exec, OptimizerConfig const& optimizer, UpdateStep const& step,
                  TensorShare const& share, Vector<float const> gradient, Vector<float> parameter, Vector<float> first,
                  Vector<float> second);

} // namespace trainstone
