#pragma once

// What a deck may not ask for: combinations of strategy, batch and algorithms that have no meaning. Pure functions of
// the configuration.

#include "comm/schedule/config.hpp"
#include "core/index.hpp"
#include "model/config.hpp"
#include "parallel/plan/config.hpp"

#include <optional>
#include <string_view>

namespace trainstone {

/// The problem of the number of dedicated servers among so many ranks, if there is one; names the nearest legal value.
std::optional<ConfigProblem> find_servers_problem(ParallelConfig const& parallel, Index ranks);

/// The problem of the strategy on this number of data ranks and of micro-batches per rank and step, if there is one;
/// names the nearest legal values.
std::optional<ConfigProblem> find_parallel_problem(ParallelConfig const& parallel, CommConfig const& comm, Index ranks,
                                                   Index rank_micro_batches);

/// The problem of a strategy that cannot share out the model among so many ranks, if there is one; names legal values.
/// \param[in] key, name, what  of the ranks: "parallel.pipeline", "pipeline", "pipeline"
std::optional<ConfigProblem> find_sharing_problem(ParallelConfig const& parallel, char const* key, Index ranks,
                                                  std::string_view name, std::string_view what);

} // namespace trainstone
