#pragma once

// The step loop. Owns all memory of a rank (allocated from the RunPlan, entered in the caller's ledger), the model, the
// engine and the step program, which it plays: forward, loss, backward, reduce, update. Promises: what it allocates,
// sends and computes is what the plan says. Does not print, read decks or open files; steps are reported to the caller.

#include "comm/communicator.hpp"
#include "core/clock.hpp"
#include "parallel/parameter_changes.hpp"
#include "parallel/program/instruction.hpp"
#include "parallel/sharded_engine.hpp"
#include "train/batch_loader.hpp"
#include "train/batch_scatter.hpp"
#include "train/early_steps.hpp"
#include "train/events.hpp"
#include "train/loss_scaler.hpp"
#include "train/run_plan.hpp"

#include <optional>
#include <span>

namespace trainstone {

class Trainer {
public:
  /// Everything referred to must outlive the object. Parameters start from the seed. `steps` is the planned length.
  Trainer(ExecutionSpace const& exec, Communicator& communicator, MemoryLedger& ledger, RunConfig const& config,
          RunPlan const& plan, TrainingBatches batches, std::int64_t steps);
  Trainer(Trainer const&) = delete;
  Trainer& operator=(Trainer const&) = delete;

  /// One optimizer step; counts from 1. The same losses and norms on all ranks. With dynamic loss scaling a step whose
  /// gradient is not finite on any rank is skipped on all: no update, and half the scale.
  /// \throws CollectiveError on all ranks if loss or gradient is not finite, naming step and part, or if more steps in
  /// a row are skipped than precision.most_skipped
  /// \param[in] ask  called before the losses travel; returns the requests of this rank; null: no requests
  StepReport step(std::int64_t step, std::function<Requests()> const& ask = nullptr);

  /// Mean held-out loss, the same on all ranks. \throws CollectiveError on all ranks if it is not finite
  double validate();

  /// Whether the last update left only finite values in this rank's shares. Waits.
  bool parameters_are_finite();

  /// Forward, loss and backward of all micro-batches of a step, the sum of gradients over the ranks and its norm,
  /// without an update. Returns the mean loss. \param[in] ask  as of step()
  double gradient(std::int64_t step, std::function<Requests()> const& ask = nullptr);

  /// After a step: compares the parameters that several ranks hold. Control traffic: RunPlan::replica_check.
  /// \throws CollectiveError (exit 65) on all ranks, naming the step and the ranks that differ
  void require_equal_replicas(std::int64_t step);

  /// The state that the trainer carries from step to step beside the engine's vectors, and how to continue from it.
  struct State {
    std::int64_t updates = 0; ///< steps that were not skipped
    LossScaler::State loss_scaler;
  };
  State state() const { return {m_updates, m_scaler.state()}; }
  void resume(State const& state);

  /// How far the parameters have moved from the initial values of the seed (parallel/parameter_changes.hpp).
  /// Collective; waits. Control traffic and kernels: RunPlan::changes_sent, RunPlan::changes_launches.
  ParameterChanges parameter_changes();

  /// From now on calls `listener` after each instruction of a program, with the seconds that it took. Waits for the
  /// kernels before and after each instruction. Null ends this.
  using InstructionListener = std::function<void(Instruction const&, double seconds)>;
  void time_instructions(InstructionListener listener) { m_instruction_listener = std::move(listener); }

  /// Waits for all work in flight, so that counters and parameters are complete.
  void finish() { m_engine.finish(); }
  /// Waits for all work that the step of the report has begun, and adds the wait to the report. The wait is a part of
  /// the step, whatever follows the step.
  void finish(StepReport& report);

  /// Forward only, of one micro-batch: leaves the logits in the model's activations. Waits.
  void logits(std::int64_t batch, Index micro_batch);

  /// Mean loss of the first positions of the first step's first sample, with the parameters as they are. Every rank
  /// runs the micro-batch that begins with it, forward only, without dropout. Waits. \param[in] positions  1 to the
  /// sequence's
  double first_sample_loss(Index positions);

  /// One update, and back to where the training began. Comes before any step and before resume(). The loss of the
  /// update is the mean over the first positions of the first step's first sample. Its learning rate is the peak,
  /// without warm-up. Nothing is dropped. Every sample of the global batch is that sample, and counts only some of
  /// these positions (first_step_part()). So the gradient lacks something if a contribution is lost, and has too much
  /// if one counts twice. Afterwards the parameters are the seed's and the moments 0. For parameters and products in
  /// fp32. Collective; waits. It costs a step, first_sample_loss(), two times parameter_changes(), and what the engine
  /// sends at the start.
  /// \param[in] positions  at least batch.global, at most the sequence's
  struct FirstUpdateOutcome {
    double loss = 0; ///< before the update
    FirstUpdate update;
  };
  FirstUpdateOutcome first_update(Index positions);

  RunConfig const& config() const { return *m_config; }
  Gpt const& model() const { return m_model; }
  ShardedEngine& engine() { return m_engine; }

private:
  /// A global batch of a training or of a validation: the values that are the same for all of its micro-batches.
  struct GlobalBatch {
    BatchSource const* source;
    std::int64_t number;
    LossMode mode;
    std::int64_t step;         ///< 0: of a validation, or of a first update
    Index first_positions = 0; ///< of a first update: how many positions of the first sample count
  };

  GlobalBatch training_batch(std::int64_t step) const;
  MicroBatch load(GlobalBatch const& global, Index turn);
  Dropout dropout(std::int64_t step, Index turn) const;
  MicroBatch forward_only(std::int64_t batch, Index micro_batch);
  void play(std::vector<Segment> const& segments, GlobalBatch const& global, Index first_micro_batch = 0);
  void play(Instruction const& instruction, GlobalBatch const& global);
  template <class Body>
  void timed(Instruction const& instruction, Body const& body);
  void forward(Instruction const& instruction, GlobalBatch const& global);
  void loss(Instruction const& instruction, GlobalBatch const& global);
  void backward(Instruction const& instruction);
  void wait(Instruction const& instruction);
  void agree(GlobalBatch const& global);
  void keep_first_positions(GlobalBatch const& global, Index turn);
  void set_initial_parameters();
  double total_loss(Requests* requests);
  void all_reduce_losses(std::vector<double>& losses, Requests* requests);
  void inject_fault(Part part, std::int64_t step);
  void inject_unplanned_calls(std::int64_t step);
  std::string describe_non_finite(GlobalBatch const& global);
  Part first_bad_part(GlobalBatch const& global, Index turn);
  bool has_non_finite(ConstStoredVector values);
  double clip_factor(double norm) const;
  void update(StepReport const& report);
  float gradient_scale(std::int64_t step) const;

  ExecutionSpace m_exec;
  Communicator* m_communicator;
  RunConfig const* m_config;
  RunPlan const* m_plan;
  TrainingBatches m_batches;
  std::int64_t m_steps;
  Allocation m_activation_memory, m_gemm_memory, m_buffer_memory, m_data_memory;
  PinnedMemory m_pinned_memory, m_mirrors;
  Arena m_buffers, m_data;
  Gemm m_gemm;
  ShardedEngine m_engine;
  BatchLoader m_loader;
  std::optional<BatchScatter> m_scatter;
  Gpt m_model;
  StepProgram m_program;
  std::vector<MicroBatch> m_loaded; ///< per turn
  Vector<double> m_loss_sums;       ///< per turn
  Vector<std::int64_t> m_count;
  LossScaler m_scaler;
  std::int64_t m_updates = 0; ///< steps that were not skipped
  InstructionListener m_instruction_listener;
  std::function<Requests()> m_ask;  ///< of the step that is played; may be empty
  Requests m_requests;              ///< of all ranks, in the last step
  double m_total_loss = 0;          ///< of the global batch that was played last
  double m_norm = 0;                ///< of its gradient
  UpdateNumbers m_update_numbers{}; ///< of the update that is played
  bool m_backward_ends = false;     ///< the last backward of the step is enqueued, and no wait has come behind it
  std::optional<SteadyTime> m_backward_end;
  double m_uncovered_seconds = 0;    ///< of this step's reductions, after the last kernel of backward
  std::vector<double> m_turn_losses; ///< what was read of m_loss_sums
};

/// The positions of the first sample that sample `place` of the global batch counts in a first update: all samples
/// together count each of the positions once, and every sample some. \param[in] samples  at most `positions`
Range first_step_part(Index place, Index samples, Index positions);

} // namespace trainstone
