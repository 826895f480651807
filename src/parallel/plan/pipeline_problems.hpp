#pragma once

// What a deck may not ask for of a pipeline. Pure functions of the configuration.

#include "core/index.hpp"
#include "model/config.hpp"
#include "parallel/plan/config.hpp"

#include <optional>

namespace trainstone {

/// The problem of the number of stages on so many ranks, if there is one; names the nearest legal values.
std::optional<ConfigProblem> find_stages_problem(ParallelConfig const& parallel, Index ranks);

/// The problem of the schedule and of the cut of a model with so many blocks. The number of stages divides the ranks.
/// \param[in] micro_batches  per rank and step
std::optional<ConfigProblem> find_pipeline_problem(ParallelConfig const& parallel, Index ranks, Index blocks,
                                                   Index micro_batches);

} // namespace trainstone
