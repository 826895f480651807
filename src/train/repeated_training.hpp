#pragma once

// Repeats an asynchronous training with parameter servers on one rank, push by push, in the order that servers have
// noted. Owns, for every worker, a copy of the parameters that it computes from. Ends with the bits of the training: a
// proof that the order is all that the training depends on.

#include "comm/execution/communicator.hpp"
#include "parallel/servers/push_record.hpp"
#include "train/planned_trainer.hpp"

#include <cstdint>
#include <memory>
#include <vector>

namespace trainstone {

class RepeatedTraining {
public:
  /// \param[in] alone    of one rank   \param[in] workers  of the training
  /// \param[in] config   the training's
  RepeatedTraining(ExecutionSpace const& exec, Communicator& alone, RunConfig const& config, Rank workers,
                   TrainingBatches batches, std::int64_t steps);

  /// Of a push: its loss and norm are those of the training. Of an answer: nothing happens that can be seen.
  void repeat(ServerAct const& act);
  /// Of the last push.
  StepReport const& last() const { return m_last; }
  Trainer& trainer() { return m_training.trainer; }

private:
  using Parameters = std::vector<std::vector<std::byte>>; ///< by group

  Parameters read();
  void write(Parameters const& parameters);

  ExecutionSpace m_exec;
  PlannedTrainer m_training;
  std::vector<Parameters> m_of_worker; ///< at its last answer
  std::vector<Index> m_clocks;
  std::int64_t m_applied = 0;
  StepReport m_last;
};

} // namespace trainstone
