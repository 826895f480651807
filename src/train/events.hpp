#pragma once

// The events that the step loop passes to callbacks: to the text in src/report, the result file in src/result, and to
// tests. Plain values.

#include "core/counters.hpp"

#include <cstdint>
#include <functional>
#include <optional>

namespace trainstone {

/// The requests of a rank: what all ranks should do after a step. In a finished step these are the requests of any
/// rank. Requests travel with the losses of the step, so that all ranks do the same after the same step.
struct Requests {
  bool stop = false;
  bool checkpoint = false;
  Requests& operator|=(Requests const& other) {
    stop = stop || other.stop;
    checkpoint = checkpoint || other.checkpoint;
    return *this;
  }
};

/// The requests as a value for messages, and back.
inline double to_number(Requests const& requests) { return (requests.stop ? 1 : 0) + (requests.checkpoint ? 2 : 0); }
inline Requests requests_of(double number) { return {.stop = number == 1 || number == 3, .checkpoint = number >= 2}; }

/// One finished optimizer step. Times are those of the reporting rank. The result of a run replaces `seconds` by the
/// maximum over ranks. It replaces the exposed communication by the minimum, which is that of the slowest rank, because
/// this rank waits for nobody.
struct StepReport {
  std::int64_t step = 0;  ///< from 1
  std::int64_t steps = 0; ///< planned for the whole run
  double loss = 0;        ///< mean over the tokens of the global batch
  double norm = 0; ///< of the gradient, before clipping; not finite if the step was skipped, nan if nobody has it
  double learning_rate = 0;
  double seconds = 0;
  std::int64_t tokens = 0;                  ///< of the global batch
  PerPhase<double> phase_seconds;           ///< of kernels, where they are timed
  bool phases_are_timed = true;             ///< on devices only where kernels are timed one by one
  double exposed_communication_seconds = 0; ///< communication that no computation covered
  std::optional<double> loss_scale;         ///< of this step's gradients, if it is dynamic
  bool skipped = false;                     ///< gradients overflowed: no update
  std::optional<double> validation_loss;    ///< held-out loss after this step, where one was measured
  Requests requests;                        ///< of all ranks
  bool is_last = false;                     ///< of this run: the training is over, or stops here
};

using StepListener = std::function<void(StepReport const&)>;

} // namespace trainstone
