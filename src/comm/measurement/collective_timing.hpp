#pragma once

// Measures calls against each other in one run: interleaved A B B A, so that what changes on the machine meanwhile
// meets all of them alike. Owns clock, order and number of calls. Promises: every sample begins after a barrier and is
// the slowest rank's time; calls are warmed up; the number of calls is the same on all ranks. Does not check results
// (collective_contest.hpp) and does not evaluate samples.

#include "comm/execution/communicator.hpp"

#include <functional>
#include <span>
#include <vector>

namespace trainstone {

/// One call of what is measured; complete on this rank when it returns (fenced).
using TimedCall = std::function<void()>;

struct TimingOptions {
  int warmup_calls = 8; ///< of each; MPICH settles for an algorithm after five
  int samples = 10;     ///< of each; even: half of them on the way forth, half on the way back
  /// Per sample. 0: as many as fill `sample_seconds`; at least 20 where these take no more than ten times that.
  int calls = 0;
  double sample_seconds = 2e-3;
};

struct TimedSamples {
  std::vector<double> seconds; ///< per call; the maximum over ranks, in the order of measurement
  int calls = 0;               ///< per sample
};

/// Where options leave it open. \param[in] seconds  that one call takes
int calls_of_sample(double seconds, TimingOptions const& options);

/// Sample i of one call and sample i of another one were measured in the same pass over all calls.
/// Collective over the communicator. \throws Error unless warmup_calls and calls are >= 0 and samples even and >= 2
std::vector<TimedSamples> time_interleaved(Communicator const& communicator, std::span<TimedCall const> calls,
                                           TimingOptions const& options);

} // namespace trainstone
