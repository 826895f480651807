#include "run_servers.hpp"

#include "train/injected_delay.hpp"
#include "train/verification/push_checks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace trainstone {

namespace {

/// A step is as many pushes as there are workers: their mean loss, the mean norm, and the time from the last push of
/// the step before to its own last one. Communication that computation does not cover is the mean over workers of what
/// a push takes, from the worker's push before on, without what the worker computes.
class StepsOfPushes {
public:
  /// \param[in] pushes  before a restart
  StepsOfPushes(PreparedRun const& run, Index pushes)
      : m_run(&run),
        m_workers(run.resolved.mesh.data()),
        m_pushes(pushes),
        m_last(static_cast<std::size_t>(m_workers), 0) {}

  std::vector<StepReport> add(std::vector<AppliedPush> const& pushes) {
    std::vector<StepReport> steps;
    for (AppliedPush const& push : pushes) {
      m_step.loss += push.loss / m_workers;
      m_step.norm += push.norm / m_workers;
      double const last = std::exchange(m_last[static_cast<std::size_t>(push.worker)], push.seconds);
      m_step.exposed_communication_seconds += std::max(0.0, push.seconds - last - push.computed) / m_workers;
      if (++m_pushes % m_workers != 0) continue;
      m_step.step = m_pushes / m_workers;
      m_step.steps = m_run->data->steps();
      m_step.learning_rate = push.learning_rate;
      m_step.seconds = push.seconds - std::exchange(m_seconds, push.seconds);
      m_step.exposed_communication_seconds = std::min(m_step.exposed_communication_seconds, m_step.seconds);
      m_step.tokens = m_run->config().batch.global * m_run->resolved.shape().sequence;
      m_step.phases_are_timed = false;
      steps.push_back(std::exchange(m_step, {}));
    }
    return steps;
  }

private:
  PreparedRun const* m_run;
  Rank m_workers;
  StepReport m_step;
  Index m_pushes;
  double m_seconds = 0;
  std::vector<double> m_last; ///< s, by worker: when its last push was applied
};

/// What this rank's pushes are, of a server all.
Index own_pushes(ServedTraining const& served, Rank rank) {
  return rank < served.policy.workers ? served.walk.pushes(rank) : served.walk.pushes();
}

} // namespace

Training train_with_servers(PreparedRun const& run, RunMemory& memory, StepListener const& listener) {
  AsynchronousTraining& servers = *memory.asynchronous;
  Training training;
  RunCheckpoints& checkpoints = *run.checkpoints;
  ServedTraining& served = training.served.emplace(memory.policy);
  served.parts = memory.recorded.value().parts;
  served.before = served.parts.size();
  for (ServerRecord const& part : served.parts) served.walk.add(part);
  Index const pushed_before = own_pushes(served, run.rank);
  training.losses = checkpoints.start().losses;
  training.counted.before = checkpoints.start().step;
  InjectedDelay const delay(run.config().faults, run.rank);
  counters() = {};
  comm_counters() = {};
  bool const loads = !run.config().model_setup.load.empty();
  training.counted.starts += (loads ? 1 : 0) + (training.counted.before > 0 ? 1 : 0);
  StepsOfPushes steps(run, served.walk.pushes());
  Traffic sent_in_validations;
  bool is_low = checkpoints.start().finished; // or at the end
  for (bool finished = checkpoints.start().finished; !finished && !training.stopped;) {
    Pause pause = servers.train([&] { return checkpoints.ask(); });
    served.parts.push_back(std::move(pause.record));
    served.walk.add(served.parts.back());
    std::vector<StepReport> reports = steps.add(served.parts.back().pushes);
    StepReport& last = reports.back();
    last.requests = pause.requests;
    finished = servers.is_over();
    if (validates_after(last.step, run)) {
      Traffic const sent = total_sent(comm_counters());
      last.validation_loss = servers.validate();
      sent_in_validations += difference(total_sent(comm_counters()), sent);
      ++training.counted.validations;
      is_low = !finished && is_low_enough(*last.validation_loss, last.step, run);
      finished = finished || is_low;
    }
    training.stopped = last.requests.stop && !finished;
    last.is_last = finished || training.stopped;
    for (StepReport const& report : reports) {
      training.samples.push_back(report);
      training.losses.push_back(report.loss);
      listener(report);
    }
    if (checkpoints.writes_after(last) || (finished && run.config().checkpoint.writes())) {
      checkpoints.write(last.step, servers, served.parts, training.losses, finished);
      ++training.counted.checkpoints;
    }
  }
  if (is_low) served.policy.pushes = served.walk.pushes(); // it needs no more
  training.counted.steps = own_pushes(served, run.rank) - pushed_before;
  note_counters(training, run, memory);
  auto const evaluated = static_cast<std::uint64_t>(training.counted.validations * training.counted.validation_batches *
                                                    run.plan->held_out_micro_batches);
  training.step_flops = model_flops(counters()) - evaluated * run.plan->evaluation_flops.total();
  training.step_launches = total_launches(counters()) - evaluated * run.plan->evaluation_launches;
  training.step_sent = difference(total_sent(comm_counters()), sent_in_validations);
  served.hashes = servers.parameter_hashes();
  return training;
}

ServerPolicy policy_of(PreparedRun const& run) {
  return server_policy(run.resolved, run.data->steps(), steps_between_pauses(run.config()));
}

Check check_collectives_with_servers(PreparedRun const& run, RankContext& context) {
  Communicator& all = context.communicator;
  Mesh const& mesh = run.resolved.mesh;
  Check mine{.name = "collectives-exact", .passed = true, .detail = "between each worker and all servers"};
  for (Rank worker = 0; worker < mesh.data(); ++worker) {
    bool const is_in = run.rank == worker || mesh.serves(run.rank);
    Communicator part = all.split(is_in ? 0 : 1);
    if (!is_in) continue;
    Check const found = check_collectives(context.exec, part, run.plan->parallel);
    mine.passed = mine.passed && found.passed;
    mine.detail = found.detail;
  }
  auto const failed = control_all_reduce(context.exec, all, Operation::sum, std::int64_t{mine.passed ? 0 : 1});
  mine.passed = failed == 0;
  mine.value = static_cast<double>(failed);
  return mine;
}

Traffic predicted_traffic(PreparedRun const& run, ServedTraining const& served) {
  ServedTraffic const sent = served_traffic(run.resolved, served.parts, served.before, 0, run.rank);
  return sent.training + sent.control;
}

std::vector<Check> verify_with_servers(PreparedRun const& run, Training const& training, RankContext& context) {
  ServedTraining const& served = training.served.value();
  auto const different = std::ranges::count_if(served.hashes, [&](auto hash) { return hash != served.hashes.front(); });
  std::vector<Check> checks{
      {"replicas-agree", different == 0, static_cast<double>(different), 0,
       fmt::format("hash of all parameters {:016x}, of every worker after the last push", served.hashes.front())}};
  ServedTraffic const predicted =
      served_traffic(run.resolved, served.parts, served.before,
                     training.counted.validations * training.counted.validation_batches, run.rank);
  checks.push_back(check_messages(context.exec, context.communicator,
                                  {.training = predicted.training, .control = predicted.control}, training.counted));
  for (Check& check : check_pushes(served.walk, served.policy)) checks.push_back(std::move(check));
  return checks;
}

} // namespace trainstone
