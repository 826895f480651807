#pragma once

// Whether the keys of a deck fit together, as far as that depends neither on files nor on the number of ranks.

#include "train/run_config.hpp"

#include <optional>

namespace trainstone {

/// The first thing that does not fit, if anything, with the nearest legal values.
std::optional<ConfigProblem> find_problem(RunConfig const& config);

/// The same of algorithms that an emulated network would not slow down, part of the above.
std::optional<ConfigProblem> find_network_problem(RunConfig const& config);

/// Buffers of messages that this build cannot have, or algorithms that move data in shared memory beside them.
std::optional<ConfigProblem> find_buffers_problem(RunConfig const& config);

/// The same of what must happen within the training, once its length in steps is known.
std::optional<ConfigProblem> find_length_problem(RunConfig const& config, std::int64_t steps);

/// Whether bytes, FLOP or tokens of a step are too many to be counted in 64 bits. The batch is resolved.
std::optional<ConfigProblem> find_size_problem(RunConfig const& config);

} // namespace trainstone
