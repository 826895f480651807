#pragma once

// What a deck may not ask for of tensor ranks, and of slices of a model's layers. Pure functions of the configuration.

#include "core/index.hpp"
#include "model/activation_plan.hpp"
#include "model/config.hpp"
#include "parallel/plan/config.hpp"

#include <optional>

namespace trainstone {

/// The problem of a grid of tensor ranks and the keys that it fills in, if they contradict each other.
std::optional<ConfigProblem> find_grid_problem(ParallelConfig const& parallel);

/// The problem of so many ranks, if the tensor ranks of a stage do not divide them, or not the heads; names legal
/// values. \param[in] parallel  find_stages_problem() has nothing to say
std::optional<ConfigProblem> find_tensor_ranks_problem(ParallelConfig const& parallel, GptConfig const& model,
                                                       Index ranks);

/// The problem of cutting a model and a micro-batch into slices and rows for parallel.tensor ranks, if there is one;
/// names legal values. \param[in] parallel  find_tensor_ranks_problem() has nothing to say
std::optional<ConfigProblem> find_tensor_problem(ParallelConfig const& parallel, GptConfig const& model,
                                                 MicroBatchShape shape);

} // namespace trainstone
