#pragma once

// The faults that a training step injects into itself where tests ask for them: values that are not finite, and calls
// that no plan knows. Does not delay anything (train/injected_delay.hpp).

#include "comm/execution/communicator.hpp"
#include "core/stored.hpp"
#include "core/views.hpp"
#include "model/part.hpp"
#include "train/plan/config.hpp"

#include <cstdint>

namespace trainstone {

class StepFaults {
public:
  StepFaults(FaultConfig config, Rank rank) : m_config(std::move(config)), m_rank(rank) {}

  /// Whether the gradients of this step overflow on this rank.
  bool overflows(std::int64_t step) const { return step == m_config.overflow_step && m_rank == m_config.overflow_rank; }

  /// Makes the first value of the part's output not a number, if this is the step and the part. Enqueued on exec.
  void after_forward(ExecutionSpace const& exec, Part part, std::int64_t step, StoredMatrix output) const;

  /// Before the losses of a step travel: a sum that no plan knows, and a barrier where the other ranks add up losses,
  /// which the order check ends. Collective.
  void before_losses(ExecutionSpace const& exec, Communicator& communicator, std::int64_t step) const;

private:
  FaultConfig m_config;
  Rank m_rank;
};

} // namespace trainstone
