#pragma once

// What a deck may not ask for of slices of a model's layers. Pure functions of the configuration.

#include "core/index.hpp"
#include "model/config.hpp"
#include "parallel/plan/config.hpp"

#include <optional>

namespace trainstone {

/// The problem of cutting a model into parallel.tensor_blocks slices, if there is one; names legal values.
/// \param[in] sequence  positions of a sample
std::optional<ConfigProblem> find_tensor_problem(ParallelConfig const& parallel, GptConfig const& model,
                                                 Index sequence);

} // namespace trainstone
