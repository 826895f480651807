#pragma once

// What `auto` means where time may be spent on it: of the algorithms whose predicted times are close, the one that is
// the fastest when it is tried. A prediction is off by as much as the machine's state differs from the state that it
// was calibrated in, so that it cannot decide between close candidates. Owns which candidates are close, and the
// short measurement. Promises: all ranks of the communicator choose the same. Another measurement may choose another
// algorithm, so nothing that promises the same bits may use this.

#include "comm/execution/communicator.hpp"
#include "comm/measurement/collective_contest.hpp"
#include "comm/simulation/chooser.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace trainstone {

/// Predictions may be wrong by this factor: candidates up to it are tried.
inline constexpr double close_factor = 4;
/// The same of predictions for default_machine(), which knows orders of magnitude alone.
inline constexpr double assumed_close_factor = 16;

/// The algorithms that are predicted to take at most `factor` times the least time, the quickest first.
/// \param[in] among  algorithms to look at; empty: all of the collective
/// \throws InputError if all algorithms refuse the problem
std::vector<PricedAlgorithm> close_candidates(Problem const& problem, std::size_t element_bytes,
                                              MachineModel const& machine, double factor = close_factor,
                                              std::span<Algorithm const> among = {});

/// The median time of every candidate in s, in their order. Of every call it is the time of the slowest rank, so that
/// all ranks have the same medians. Collective over the communicator; takes some milliseconds per candidate.
/// \param[in] candidates  at least one    \param[in,out] memory  at least contest_bytes() of all candidates
/// \param[in] fresh       as in ContestOptions
std::vector<double> time_candidates(ExecutionSpace const& exec, Communicator& communicator, Problem const& problem,
                                    Operation operation, ElementType type, std::span<PricedAlgorithm const> candidates,
                                    MeasuredBuffers const& memory, bool fresh);

/// The candidate with the least median time of time_candidates(), which has the same parameters. Ties go to the earlier
/// candidate. One candidate is not tried. Collective over the communicator.
PricedAlgorithm choose_by_measurement(ExecutionSpace const& exec, Communicator& communicator, Problem const& problem,
                                      Operation operation, ElementType type,
                                      std::span<PricedAlgorithm const> candidates, MeasuredBuffers const& memory,
                                      bool fresh);

} // namespace trainstone
