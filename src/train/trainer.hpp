#pragma once

// The step loop. Owns all memory of a rank (allocated from the RunPlan, entered in the caller's ledger), the model, the
// engine and the step program, which it plays: forward, loss, backward, reduce, update. Promises: what it allocates,
// sends and computes is what the plan says. Does not print, read decks or open files; steps are reported to the caller.

#include "comm/execution/communicator.hpp"
#include "parallel/engine/parameter_changes.hpp"
#include "parallel/engine/sharded_engine.hpp"
#include "parallel/program/instruction.hpp"
#include "train/data/batch_loader.hpp"
#include "train/data/batch_scatter.hpp"
#include "train/events.hpp"
#include "train/loss_scaler.hpp"
#include "train/pace.hpp"
#include "train/plan/run_plan.hpp"
#include "train/played_step.hpp"
#include "train/repeated_runs.hpp"
#include "train/slot_use.hpp"
#include "train/stage_clock.hpp"
#include "train/step_faults.hpp"

#include <optional>
#include <span>

namespace trainstone {

/// Workers that do not wait for each other (train/asynchronous_training.hpp). Each of them has a trainer, a plan and a
/// communicator with the servers alone, and a share of the samples of every global batch.
struct FellowWorkers {
  Rank workers = 1;
  Rank worker = 0; ///< whose samples this trainer has; of a server 0
  Rank rank = 0;   ///< of this trainer among all ranks, for faults that name one
};

class Trainer {
public:
  /// Everything referred to must outlive the object. Parameters start from the seed. `steps` is the planned length.
  /// \param[in] fellows  if the workers of the training do not wait for each other
  Trainer(ExecutionSpace const& exec, Communicator& communicator, MemoryLedger& ledger, RunConfig const& config,
          RunPlan const& plan, TrainingBatches batches, std::int64_t steps,
          std::optional<FellowWorkers> const& fellows = {});
  Trainer(Trainer const&) = delete;
  Trainer& operator=(Trainer const&) = delete;

  /// One optimizer step; counts from 1. The same losses and norms on all ranks. With dynamic loss scaling a step whose
  /// gradient is not finite on any rank is skipped on all: no update, and half the scale.
  /// \throws CollectiveError on all ranks if loss or gradient is not finite, naming step and part, or if more steps in
  /// a row are skipped than precision.most_skipped
  /// \param[in] ask  called before the losses travel; returns the requests of this rank; null: no requests
  StepReport step(std::int64_t step, std::function<Requests()> const& ask = nullptr);

  // Among fellow workers the step of a worker is its own, and ends when the servers have answered with parameters.
  /// From now on called in every step before this worker's first gradient is pushed.
  void before_push(std::function<void()> call) { m_before_push = std::move(call); }
  /// On a server: another worker, after those that came before. Collective over the ranks of the communicator, the
  /// worker and all servers, which must outlive the object.
  void add_worker(Communicator& ranks);
  /// On a server: applies the next push of a worker, by number in the order of their coming. \param[in] update  number
  /// of the push among those of all workers, from 1
  StepReport apply_push(std::size_t worker, std::int64_t update);
  /// On a rank that has everything: the same for a worker that computed from older parameters.
  /// \param[in] clock  of the worker: its pushes before this one   \param[in] become_old, become_new  set the model's
  /// parameters to what the worker computed from, and back; waits for neither
  StepReport repeat_push(Rank worker, Index clock, std::int64_t update, std::function<void()> const& become_old,
                         std::function<void()> const& become_new);
  /// On a worker that has not pushed since it got its parameters: takes newer ones. Waits.
  void refresh();
  /// On a server: gives a worker the parameters, if it has old ones. Waits.
  void answer(std::size_t worker);
  /// Sums of the losses of this rank's micro-batches of a held-out global batch, over tokens.
  std::vector<double> held_out_losses(std::int64_t number);

  /// Mean held-out loss, the same on all ranks. \throws CollectiveError on all ranks if it is not finite
  double validate();

  /// Whether the last update left only finite values in this rank's shares. Waits.
  bool parameters_are_finite();

  /// Forward, loss and backward of all micro-batches of a step, the sum of gradients over the ranks and its norm,
  /// without an update.
  void gradient(PlayedStep& played);
  /// As above, of a step of the training. Returns the mean loss.
  double gradient(std::int64_t step);

  /// Forward and losses of a micro-batch of a training step, on this rank: leaves both in the model's activations.
  /// Waits. \param[in] batch, micro_batch  of all ranks, from 0
  void evaluate(std::int64_t batch, Index micro_batch);

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

  /// How far the parameters have moved from the initial values of the seed (parallel/engine/parameter_changes.hpp).
  /// Collective; waits. Control traffic and kernels: RunPlan::changes_sent, RunPlan::changes_launches.
  ParameterChanges parameter_changes();
  /// The same means of |gradient|, after gradient(). Collective; waits. Costs what parameter_changes() costs.
  ParameterChanges gradient_sizes();
  /// Parameters begin with the seed, as after construction.
  void set_initial_parameters();

  /// From now on calls `listener` after each instruction of a program, with the seconds that it took. Waits for the
  /// kernels before and after each instruction. Null ends this.
  using InstructionListener = std::function<void(Instruction const&, double seconds)>;
  void time_instructions(InstructionListener listener) { m_instruction_listener = std::move(listener); }

  /// On a stage of a pipeline. From now on, the gradient of a step begins with a barrier of this rank's pipeline, which
  /// no counter counts. Then the clock hears of each instruction, as a listener of time_instructions() does. Null ends
  /// this and ends time_instructions().
  void measure_stage(StageClock* clock);

  /// Waits for all work in flight, so that counters and parameters are complete.
  void finish() { m_engine.finish(); }
  /// Waits for all work that the step of the report has begun, and adds the wait to the report. The wait is a part of
  /// the step, whatever follows the step.
  void finish(StepReport& report);

  ExecutionSpace const& exec() const { return m_exec; }
  RunConfig const& config() const { return *m_config; }
  TrainingBatches const& batches() const { return m_batches; }
  /// Of the training step that is played.
  SlotUse const& slots() const { return m_slots; }
  Gpt const& model() const { return m_model; }
  /// Of the model, those that are here.
  TensorSlices const& slices() const { return m_plan->parallel.parts.options().slices; }
  ShardedEngine& engine() { return m_engine; }

private:
  void clear_activations();
  PlayedStep training_step(std::int64_t step) const;
  double mean_loss(PlayedStep const& played) const;
  /// "step 3"; of a server's, whose steps are pushes, "push 3, of worker 1".
  std::string name_of(std::int64_t step) const;
  /// Of a step, or of a push among those of all workers, from 1.
  double learning_rate(std::int64_t step, bool counts_pushes) const;
  StepReport end_step(std::int64_t step, PlayedStep& played, double rate);
  void meet(std::size_t worker);
  PlayedStep play_held_out(std::int64_t number);
  void update(StepReport const& report, PlayedStep& played);
  UpdateNumbers update_numbers(double rate, std::optional<double> norm) const;
  std::string describe_non_finite(PlayedStep const& played);

  // step_runner.cpp: how a program is played
  void play(std::vector<Segment> const& segments, PlayedStep& played, Index first_micro_batch = 0);
  void play(Instruction const& instruction, PlayedStep& played);
  bool repeats_runs(PlayedStep const& played) const;
  std::size_t runs_to_remember() const;
  std::size_t play_run(std::vector<Instruction> const& instructions, std::size_t first, Index time, PlayedStep& played);
  template <class Body>
  void timed(Instruction const& instruction, Body const& body);
  template <class Body>
  void paced(Instruction const& instruction, Body const& body);
  void load(PlayedStep const& played, Index micro_batch);
  Index number_of(PlayedStep const& played, Index micro_batch) const;
  Index micro_batches_of(PlayedStep const& played) const;
  Gpt& model_of(bool held_out);
  float gradient_scale(std::int64_t step) const;
  Dropout dropout(PlayedStep const& played, Index micro_batch) const;
  void compute(Instruction const& instruction, MicroBatch const& batch, LossMode mode, bool held_out);
  void loss(Instruction const& instruction, MicroBatch const& batch, LossMode mode, Gpt& model);
  void backward(Instruction const& instruction, MicroBatch const& batch);
  void add_up_rows(Instruction const& instruction, bool held_out);
  void note_begin(Instruction const& instruction, PlayedStep const& played);
  void look_at_output(Instruction const& instruction, PlayedStep const& played);
  void note_end(Instruction const& instruction, PlayedStep& played);
  void wait(Instruction const& instruction, PlayedStep& played);
  void wait_for_backward(PlayedStep& played);
  void agree(PlayedStep& played);
  void add_up_losses(PlayedStep& played);

  ExecutionSpace m_exec;
  Communicator* m_communicator;
  std::optional<FellowWorkers> m_fellows;
  std::vector<Communicator*> m_workers; ///< of a server: with each of them
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
  std::optional<Gpt> m_held_out_model; ///< of validations whose micro-batches have another size, in the same memory
  StepProgram m_program;
  std::vector<Segment> m_answer; ///< among fellow workers: what of an update gives out parameters
  std::function<void()> m_before_push;
  std::vector<MicroBatch> m_loaded; ///< by micro-batch of this rank
  Vector<double> m_loss_sums;       ///< by micro-batch of this rank
  Vector<std::int64_t> m_count;
  StepFaults m_faults;
  Pace m_pace;
  LossScaler m_scaler;
  std::int64_t m_updates = 0; ///< steps that were not skipped
  InstructionListener m_instruction_listener;
  StageClock* m_stage_clock = nullptr;
  SlotUse m_slots;
  RepeatedRuns m_runs;
};

} // namespace trainstone
