#pragma once

// What a deck may not ask for of tensor ranks, and of slices of a model's layers. Pure functions of the configuration.

#include "core/index.hpp"
#include "model/config.hpp"
#include "parallel/plan/config.hpp"

#include <optional>

namespace trainstone {

/// The problem of so many ranks, if the tensor ranks of a stage do not divide them; names legal values.
/// \param[in] parallel  find_stages_problem() has nothing to say
std::optional<ConfigProblem> find_tensor_ranks_problem(ParallelConfig const& parallel, Index ranks);

/// The problem of cutting a model into parallel.slices() slices for parallel.tensor ranks, if there is one; names legal
/// values. \param[in] sequence  positions of a sample
std::optional<ConfigProblem> find_tensor_problem(ParallelConfig const& parallel, GptConfig const& model,
                                                 Index sequence);

} // namespace trainstone
