#pragma once

// Checks whether the keys of a deck fit together, as far as this depends neither on files nor on the number of ranks.

#include "train/plan/run_config.hpp"

#include <optional>

namespace trainstone {

/// The first problem, if there is one, with the nearest legal values.
std::optional<ConfigProblem> find_problem(RunConfig const& config);

/// A part of the above: the problem of algorithms that an emulated network would not slow down.
std::optional<ConfigProblem> find_network_problem(RunConfig const& config);

/// A part of the above: the problem of what a training cannot have whose workers do not wait for each other.
std::optional<ConfigProblem> find_asynchronous_problem(RunConfig const& config);
/// The same where servers update unit by unit.
std::optional<ConfigProblem> find_priority_problem(RunConfig const& config);

/// The problem of message buffers that this build cannot have.
std::optional<ConfigProblem> find_buffers_problem(RunConfig const& config);
/// The problem of algorithms that move data in shared memory, where kernels do not reach their neighbours' memory.
/// \param[in] finding  the reason (comm/execution/buffers_start.hpp)
std::optional<ConfigProblem> find_neighbours_problem(RunConfig const& config, std::string const& finding);

/// The problem of keys that count in steps, once the length of the training in steps is known.
std::optional<ConfigProblem> find_length_problem(RunConfig const& config, std::int64_t steps);

/// The problem of chunks of the loss that do not divide the rows of a micro-batch. The batch is resolved.
std::optional<ConfigProblem> find_chunks_problem(RunConfig const& config);

/// The problem of micro-batches of a validation that differ from those of the training. The batch is resolved.
std::optional<ConfigProblem> find_held_out_problem(RunConfig const& config);

/// Whether bytes, FLOP or tokens of a step are too many to be counted in 64 bits. The batch is resolved.
std::optional<ConfigProblem> find_size_problem(RunConfig const& config);

} // namespace trainstone
