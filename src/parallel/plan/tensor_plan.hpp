#pragma once

// What the ranks of a tensor group bring together while they compute: sums and maxima over slices of the model. Owns
// the collectives. A plain value. Does not know when a step needs them (parallel/program/passes.hpp).

#include "core/storage.hpp"
#include "model/activation_plan.hpp"
#include "model/part.hpp"
#include "model/part_lists.hpp"
#include "parallel/plan/planned_collective.hpp"
#include "parallel/plan/state_layout.hpp"

#include <cstddef>
#include <map>

namespace trainstone {

struct PlannedExchange {
  PlannedCollective collective;
  std::size_t element_bytes;
};

struct TensorPlan {
  /// Empty: one rank has all slices.
  std::map<SliceExchange, PlannedExchange> exchanges = {};
  Storage sum_storage = Storage::fp32; ///< of SliceExchange::sum
};

/// By the default algorithm. \param[in] parts   of this rank
/// \param[in] stream  the residual stream of a micro-batch, (N, C)
TensorPlan make_tensor_plan(AlgorithmChoice choice, StateLayout const& layout, PartTable const& parts, Extents stream);

} // namespace trainstone
