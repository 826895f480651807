#include "run_training.hpp"

#include "core/launch.hpp"
#include "run_servers.hpp"
#include "train/injected_delay.hpp"

#include <algorithm>
#include <optional>

namespace trainstone {

namespace {

/// Runs it and notes what it computed, sent and took; also what it has begun, if something follows that waits for it.
StepReport counted_step(Trainer& trainer, std::int64_t step, PreparedRun const& run, Training& training,
                        bool is_followed) {
  RunCheckpoints const& checkpoints = *run.checkpoints;
  Counters const before = counters();
  Traffic const sent = total_sent(comm_counters());
  bool const is_measured = step >= run.window.first && step <= run.window.last;
  bool const times_kernels = run.config().bench.kernels && is_measured;
  StateMoves const gathered = trainer.engine().parameter_shares().gathered();
  std::optional<StageClock> clock;
  if (run.config().bench.pipeline && is_measured) clock.emplace(run.plan->parallel.parts);
  trainer.measure_stage(clock ? &*clock : nullptr);
  StepReport report = [&] {
    ThreadKernelTable const table(times_kernels ? &training.kernels : nullptr);
    return trainer.step(step, [&] { return checkpoints.ask(); });
  }();
  trainer.measure_stage(nullptr);
  if (clock) training.stages.push_back(clock->times());
  if (is_followed || checkpoints.writes_after(report)) trainer.finish(report);
  training.step_flops += model_flops(counters()) - model_flops(before);
  training.step_launches += total_launches(counters()) - total_launches(before);
  training.step_sent += difference(total_sent(comm_counters()), sent);
  training.step_gathered = training.step_gathered + (trainer.engine().parameter_shares().gathered() - gathered);
  return report;
}

/// At the end of the early steps. The step waits for what it has begun.
bool measures_changes_after(std::int64_t step, PreparedRun const& run) {
  return step == std::min(early_steps, run.data->steps());
}

/// Of a training that began with the seed's parameters.
void note_early(Training& training, Trainer& trainer, StepReport const& report, PreparedRun const& run, bool finished) {
  EarlySteps& early = training.early;
  if (report.step <= early_steps) early.norms.push_back(report.norm);
  bool const ends = measures_changes_after(report.step, run) || (finished && report.step < early_steps);
  if (!ends || !run.config().model_setup.load.empty()) return;
  ParameterChanges const changes = trainer.parameter_changes();
  early.changes.assign(changes.begin(), changes.end());
  early.changed_after = report.step;
  ++training.counted.changes;
}

} // namespace

RunMemory::RunMemory(PreparedRun const& run, RankContext& context) : outputs(run, context, ledger) {
  if (!run.one_worker) {
    synchronous = std::make_unique<Trainer>(context.exec, context.communicator, ledger, run.config(), *run.plan,
                                            run.data->batches(), run.data->steps());
    return;
  }
  policy = policy_of(run);
  recorded = recorded_pushes(policy, run.checkpoints->start().acts);
  asynchronous = std::make_unique<AsynchronousTraining>(context.exec, context.communicator, ledger, run.resolved,
                                                        *run.one_worker, *run.plan, run.data->batches(),
                                                        run.data->steps(), policy, recorded->clocks);
}

void note_counters(Training& training, PreparedRun const& run, RunMemory const& memory) {
  training.counted.validation_batches = run.data->batches().validation_batches;
  training.counted.kernels = counters();
  training.counted.communication = comm_counters();
  training.counted.memory = memory.ledger.high_water();
}

bool validates_after(std::int64_t step, PreparedRun const& run) {
  if (run.data->validation_samples() == 0) return false;
  std::int64_t const every = run.config().data.validate_every;
  return step == run.data->steps() || (every > 0 && step % every == 0);
}

bool is_low_enough(double held_out, std::int64_t step, PreparedRun const& run) {
  double const stop_loss = run.config().length.stop_loss;
  std::int64_t const first = run.config().bench.warmup_steps + 1; // as if never interrupted: the same step ends it
  return stop_loss > 0 && held_out <= stop_loss && step >= first;
}

Training train_steps(PreparedRun const& run, RunMemory& memory, StepListener const& listener) {
  if (memory.asynchronous) return train_with_servers(run, memory, listener);
  Trainer& trainer = memory.trainer();
  RunCheckpoints& checkpoints = *run.checkpoints;
  Training training;
  InjectedDelay const delay(run.config().faults, run.rank);
  training.counted.start = comm_counters().total(Purpose::start);
  counters() = {};
  comm_counters() = {};
  training.losses = checkpoints.start().losses;
  training.early = checkpoints.start().early;
  training.counted.before = checkpoints.start().step;
  bool const loads = !run.config().model_setup.load.empty(), resumes = training.counted.before > 0;
  training.counted.starts += (loads ? 1 : 0) + (resumes ? 1 : 0) + (run.compares_first_update() ? 1 : 0);
  std::int64_t const steps = run.data->steps();
  OptimizerState const& state = trainer.engine().optimizer_state();
  ParameterShares const& shares = trainer.engine().parameter_shares();
  StateMoves const moved = state.moved(), gathered = shares.gathered();
  double const waited = state.waited_seconds() + shares.waited_seconds();
  double const filed = state.file_seconds().total() + shares.file_seconds().total();
  bool finished = checkpoints.start().finished;
  for (std::int64_t step = training.counted.before + 1; !finished && !training.stopped; ++step) {
    bool const validates = validates_after(step, run);
    bool const compares = run.plan->checks_replicas_after(step);
    bool const is_followed = validates || compares || measures_changes_after(step, run) || step == steps;
    StepReport report = counted_step(trainer, step, run, training, is_followed);
    if (compares) trainer.require_equal_replicas(step);
    if (validates) {
      report.validation_loss = trainer.validate();
      ++training.counted.validations;
      finished = is_low_enough(*report.validation_loss, step, run);
    }
    if (report.skipped) ++training.counted.skipped;
    finished = finished || step == steps;
    training.stopped = report.requests.stop && !finished;
    report.is_last = finished || training.stopped;
    training.samples.push_back(report);
    training.losses.push_back(report.loss);
    note_early(training, trainer, report, run, finished);
    listener(report);
    if (checkpoints.writes_after(report) || (finished && run.config().checkpoint.writes())) {
      checkpoints.write(step, trainer, {training.losses, training.early}, finished);
      ++training.counted.checkpoints;
    }
  }
  training.counted.steps = std::ssize(training.samples);
  training.counted.moves = state.moved() - moved;
  training.counted.gathered = shares.gathered() - gathered;
  training.offload_seconds = state.waited_seconds() + shares.waited_seconds() - waited;
  training.file_seconds = state.file_seconds().total() + shares.file_seconds().total() - filed;
  note_counters(training, run, memory);
  return training;
}

} // namespace trainstone
