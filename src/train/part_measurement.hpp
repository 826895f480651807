#pragma once

// Measures what the computing parts of a step take on this machine. All ranks train a model with the shapes of a deck
// but fewer blocks, each for itself, at the same time. Owns which training that is. Promises: parts run in the order of
// a real step, on as much memory as a few blocks have. Writes no file.

#include "comm/execution/communicator.hpp"
#include "core/memory.hpp"
#include "core/views.hpp"
#include "parallel/program/part_times.hpp"
#include "train/plan/resolved_run.hpp"

namespace trainstone {

/// The training of one rank alone that is timed: at most four blocks, two micro-batches, the optimizer, the precision
/// and the products of the deck. \param[in] config  resolved
RunConfig measured_training(RunConfig const& config);

struct PartMeasurement {
  double seconds = 4;            ///< that all steps take together, about
  std::int64_t fewest_steps = 5; ///< without two steps that are not counted
  std::int64_t most_steps = 100;
};

/// Medians over steps, of the slowest rank. Collective over the communicator. Memory is entered in the ledger: that of
/// plan_run(training, 0). \param[in] training  measured_training(), resolved for one rank
PartTimes measure_parts(ExecutionSpace const& exec, Communicator& communicator, MemoryLedger& ledger,
                        ResolvedRun const& training, PartMeasurement const& options = {});

} // namespace trainstone
