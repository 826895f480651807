#pragma once

// Checkpoints of a run: finds the checkpoint to go on from, decides when to write one or to stop, and measures the
// time. Prints what it does.

#include "commands.hpp"

#include "core/clock.hpp"
#include "core/folder_lock.hpp"
#include "result/result.hpp"
#include "train/asynchronous_training.hpp"
#include "train/checkpoint/checkpoint.hpp"
#include "train/checkpoint/folder.hpp"
#include "train/trainer.hpp"

#include <optional>
#include <string>
#include <vector>

namespace trainstone {

struct PreparedRun;

class RunCheckpoints {
public:
  /// Finds the checkpoint to go on from and verifies it. Collective; the context must outlive the object.
  /// \param[in] run       planned, with its data
  /// \param[in] max_time  s since run.begin, after which the run stops; none: never
  /// \throws CollectiveError (exit 64) if the deck names one that is not usable
  RunCheckpoints(PreparedRun const& run, RankContext& context, std::optional<double> max_time);

  /// Where the training goes on; step 0: at its begin.
  TrainingProgress const& start() const;
  /// Sets the trainer to the state of the checkpoint. Collective.
  void load(Trainer& trainer);

  /// The requests of this rank, for the losses of a step.
  Requests ask() const;
  /// Whether a checkpoint is due after this step, or the run stops. The same on all ranks.
  bool writes_after(StepReport const& step) const;
  /// The progress of the training after all steps so far.
  struct Steps {
    std::vector<double> const& losses;
    EarlySteps const& early;
  };
  /// Compares replicas first. Collective.
  /// \throws CollectiveError if replicas differ (exit 65), or if it cannot be written
  void write(std::int64_t step, Trainer& trainer, Steps const& steps, bool finished);
  /// The same where workers do not wait for each other, in a pause. \param[in] record  since the begin
  void write(std::int64_t step, AsynchronousTraining& training, std::vector<ServerRecord> const& record,
             std::vector<double> const& losses, bool finished);

  CheckpointInfo const& info() const { return m_info; }

private:
  CheckpointManifest about(TrainingProgress progress) const;
  void note(WrittenCheckpoint const& written);
  void find_start(Index vectors);
  void find_own();
  void require_nothing_later() const;

  CheckpointConfig m_config;
  GptConfig m_model;
  RankContext* m_context;
  SteadyTime m_begin, m_last;
  std::optional<double> m_max_time;
  TrainingIdentity m_identity;
  std::optional<StoredCheckpoint> m_start;
  std::optional<FolderLock> m_lock;          ///< of the first rank
  std::vector<std::string> m_all, m_refused; ///< in checkpoint.dir, newest first
  std::vector<std::string> m_own;            ///< checkpoints of this training in m_all that were not refused
  CheckpointInfo m_info;
};

} // namespace trainstone
