#include "train/trainer.hpp"

#include "comm/buffers.hpp"
#include "comm/control.hpp"
#include "core/clock.hpp"
#include "core/host_copy.hpp"
#include "core/launch.hpp"
#include "core/region.hpp"
#include "kernels/norm.hpp"
#include "parallel/program/step_programs.hpp"
#include "train/batches.hpp"
#include "train/learning_rate.hpp"
#include "train/replica_check.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace trainstone {

namespace {

Allocation allocate(MemoryLedger& ledger, MemoryCategory category, std::string const& label,
                    std::vector<PlannedTensor> const& tensors) {
  return Allocation(ledger, category, label, total_bytes(tensors));
}

Allocation allocate_gemm_scratch(MemoryLedger& ledger, RunConfig const& config, RunPlan const& plan) {
  return Allocation(ledger, MemoryCategory::buffers, "GEMM scratch",
                    memory_footprint(gemm_scratch_bytes(config.model, plan.shape, plan.gemm, plan.storage())));
}

Activations bind_all(RunConfig const& config, RunPlan const& plan, Allocation const& memory) {
  Arena arena(memory.bytes());
  Activations all(config.model, plan.shape, arena, plan.storage().values, config.model_options);
  TRAINSTONE_REQUIRE(arena.used() == arena.capacity(), "{} of {} planned bytes of activations are used", arena.used(),
                     arena.capacity());
  return all;
}

/// What a part of the step took since its start. Where the host computes, it communicates only while it computes
/// nothing.
void add_times(StepReport& report, SteadyTime start, PerPhase<double> const& phases_before) {
  report.seconds += seconds_since(start);
  for (Phase phase : phases) report.phase_seconds[phase] += counters().seconds[phase] - phases_before[phase];
  if (launches_wait)
    report.exposed_communication_seconds +=
        counters().seconds[Phase::communication] - phases_before[Phase::communication];
}

} // namespace

Trainer::Trainer(ExecutionSpace const& exec, Communicator& communicator, MemoryLedger& ledger, RunConfig const& config,
                 RunPlan const& plan, TrainingBatches batches, std::int64_t steps)
    : m_exec(exec),
      m_communicator(&communicator),
      m_config(&config),
      m_plan(&plan),
      m_batches(std::move(batches)),
      m_steps(steps),
      m_activation_memory(
          allocate(ledger, MemoryCategory::activations, "activations",
                   activation_plan(config.model, plan.shape, plan.storage().values, config.model_options))),
      m_gemm_memory(allocate_gemm_scratch(ledger, config, plan)),
      m_buffer_memory(allocate(ledger, MemoryCategory::buffers, "buffers", buffer_plan(plan))),
      m_data_memory(allocate(ledger, MemoryCategory::data, "data", data_plan(plan))),
      m_pinned_memory(ledger, "staging", total_bytes(plan.parallel.pinned_buffers())),
      m_mirrors(ledger, "mirrors of data", total_bytes(mirror_plan(plan)), MemoryCategory::data),
      m_buffers(m_buffer_memory.bytes()),
      m_data(m_data_memory.bytes()),
      m_gemm(plan.gemm, m_gemm_memory.bytes()),
      m_engine(exec, communicator, ledger, plan.parallel, plan.table, m_buffers, m_pinned_memory),
      m_loader(plan.shape, plan.accumulation, config.model.vocab, m_data, m_mirrors),
      m_model(config.model, plan.table, plan.shape, bind_all(config, plan, m_activation_memory), m_gemm,
              config.model_options),
      m_program(make_step_program(plan.parallel)),
      m_loaded(static_cast<std::size_t>(plan.accumulation)),
      m_loss_sums(m_buffers.vector<double>("loss sums", plan.accumulation)),
      m_count(m_buffers.vector<std::int64_t>("non-finite count", 1)),
      m_scaler(config.precision) {
  if (plan.batch_scatter) m_scatter.emplace(exec, communicator, plan, m_data, m_mirrors);
  for (Arena const* arena : {&m_buffers, &m_data})
    TRAINSTONE_REQUIRE(arena->used() == arena->capacity(), "{} of {} planned bytes are used", arena->used(),
                       arena->capacity());
  for (PinnedMemory const* pinned : {&m_pinned_memory, &m_mirrors})
    TRAINSTONE_REQUIRE(pinned->used() == pinned->capacity(), "{} of {} planned pinned bytes are used", pinned->used(),
                       pinned->capacity());
  set_initial_parameters();
}

void Trainer::set_initial_parameters() {
  m_engine.set_parameters([&](Index group, Range share, Vector<float> values) {
    initialize_parameters(m_exec, m_plan->table, group, static_cast<std::uint64_t>(m_config->data.seed), share, values);
  });
}

void Trainer::resume(State const& state) {
  m_updates = state.updates;
  m_scaler.resume(state.loss_scaler);
}

StepReport Trainer::step(std::int64_t step, std::function<Requests()> const& ask) {
  SteadyTime const start = std::chrono::steady_clock::now();
  PerPhase<double> const phases_before = counters().seconds;
  LearningRate const schedule{m_config->schedule.type, m_config->optimizer.learning_rate, m_config->schedule.warmup,
                              m_steps, m_config->schedule.final_lr_fraction};

  StepReport report;
  report.step = step;
  report.steps = m_steps;
  report.learning_rate = schedule.at(step - 1);
  report.tokens = m_config->batch.global * m_plan->shape.sequence;
  report.loss = gradient(step, ask);
  report.requests = m_requests;
  report.norm = m_norm / m_scaler.scale();
  if (m_scaler.is_dynamic()) report.loss_scale = m_scaler.scale();
  report.skipped = m_scaler.is_dynamic() && !std::isfinite(report.norm);
  if (!std::isfinite(report.loss) || !(std::isfinite(report.norm) || report.skipped))
    throw CollectiveError(fmt::format("step {}: loss {}, gradient norm {}: {}", step, report.loss, report.norm,
                                      describe_non_finite(training_batch(step))));
  if (!report.skipped) update(report);
  m_scaler.observe(report.skipped);
  if (m_scaler.skipped_in_a_row() > m_config->precision.most_skipped)
    throw CollectiveError(fmt::format("step {}: gradients overflow in the last {} steps, now at a loss scale of {}: {}",
                                      step, m_scaler.skipped_in_a_row(), m_scaler.scale(),
                                      describe_non_finite(training_batch(step))));
  m_exec.fence("trainstone::train::step: the step is timed");
  report.phases_are_timed = launches_wait || kernel_table();
  report.exposed_communication_seconds = launches_wait ? 0 : m_uncovered_seconds;
  add_times(report, start, phases_before);
  return report;
}

void Trainer::finish(StepReport& report) {
  SteadyTime const start = std::chrono::steady_clock::now();
  PerPhase<double> const phases_before = counters().seconds;
  m_engine.finish();
  m_exec.fence("trainstone::train::finish: the step is timed");
  if (!launches_wait) report.exposed_communication_seconds += seconds_since(start);
  add_times(report, start, phases_before);
}

/// Clips by the norm: with min(1, clip / (norm + 1e-6)), or not at all.
double Trainer::clip_factor(double norm) const {
  double const limit = m_config->optimizer.clip;
  return limit > 0 ? std::min(1.0, limit / (norm + 1e-6)) : 1.0;
}

void Trainer::update(StepReport const& report) {
  ++m_updates;
  m_update_numbers = {report.learning_rate, clip_factor(report.norm) / m_scaler.scale(), m_updates};
  play(m_program.update, training_batch(report.step));
}

/// What a token's loss is multiplied with where its gradient begins.
float Trainer::gradient_scale(std::int64_t step) const {
  FaultConfig const& faults = m_config->faults;
  if (step == faults.overflow_step && m_plan->rank == faults.overflow_rank)
    return std::numeric_limits<float>::infinity();
  return static_cast<float>(m_scaler.scale() / static_cast<double>(m_config->batch.global * m_plan->shape.sequence));
}

Trainer::GlobalBatch Trainer::training_batch(std::int64_t step) const {
  return {&m_batches.training, step - 1, LossMode::training, step};
}

double Trainer::gradient(std::int64_t step, std::function<Requests()> const& ask) {
  m_ask = ask;
  m_backward_ends = false;
  m_backward_end.reset();
  m_loader.begin(m_exec);
  play(m_program.step, training_batch(step));
  return m_total_loss / static_cast<double>(m_config->batch.global * m_plan->shape.sequence);
}

MicroBatch Trainer::load(GlobalBatch const& global, Index turn) {
  BatchSource const& source = *global.source;
  MicroBatch batch = m_loader.load(m_exec, m_scatter ? m_scatter->source(source, turn) : source, global.number,
                                   m_plan->parallel.micro_batch(turn), turn);
  if (global.mode == LossMode::evaluation) return batch;
  if (global.first_positions > 0) {
    batch.gradient_scale = 1 / static_cast<float>(global.first_positions);
    return batch;
  }
  batch.gradient_scale = gradient_scale(global.step);
  batch.dropout = dropout(global.step, turn);
  return batch;
}

/// Samples are counted on from step to step: no epoch sees the masks of another one.
Dropout Trainer::dropout(std::int64_t step, Index turn) const {
  BatchConfig const& batch = m_config->batch;
  std::int64_t const first = (step - 1) * batch.global + m_plan->parallel.micro_batch(turn) * batch.micro;
  return {.rate = m_config->model_options.dropout,
          .seed = static_cast<std::uint64_t>(m_config->data.seed),
          .first_sample = static_cast<std::uint64_t>(first)};
}

/// Of a global batch, over all ranks: whoever ran its micro-batches, the sum has the same bits. Requests meet in the
/// same collective; null: there are none, in a validation.
double Trainer::total_loss(Requests* requests) {
  m_turn_losses = copy_to_host(m_exec, m_loss_sums, "trainstone::train::loss: the host reports it");
  std::vector<double> losses(static_cast<std::size_t>(m_plan->parallel.micro_batches()), 0);
  for (Index turn = 0; turn < m_plan->accumulation; ++turn)
    losses[static_cast<std::size_t>(m_plan->parallel.micro_batch(turn))] =
        m_turn_losses[static_cast<std::size_t>(turn)];
  all_reduce_losses(losses, requests);
  for (std::size_t stride = 1; stride < losses.size(); stride *= 2)
    for (std::size_t i = 0; i + stride < losses.size(); i += 2 * stride) losses[i] += losses[i + stride];
  return losses.front();
}

/// Requests travel as a value of each rank behind the losses.
void Trainer::all_reduce_losses(std::vector<double>& losses, Requests* requests) {
  if (!requests) return control_all_reduce(m_exec, *m_communicator, Operation::sum, losses);
  std::size_t const count = losses.size();
  losses.resize(count + static_cast<std::size_t>(m_plan->ranks), 0.0);
  losses[count + static_cast<std::size_t>(m_plan->rank)] = to_number(*requests);
  control_all_reduce(m_exec, *m_communicator, Operation::sum, losses);
  *requests = {};
  for (std::size_t i = count; i < losses.size(); ++i) *requests |= requests_of(losses[i]);
  losses.resize(count);
}

double Trainer::validate() {
  constexpr std::int64_t no_step = 0; // faults are for training steps
  double loss_sum = 0;
  for (std::int64_t number = 0; number < m_batches.validation_batches; ++number) {
    GlobalBatch const global{&m_batches.validation, number, LossMode::evaluation, no_step};
    m_loader.begin(m_exec);
    for (Index turn = 0; turn < m_plan->accumulation; ++turn) play(m_program.evaluation, global, turn);
    double const loss = total_loss(nullptr);
    if (!std::isfinite(loss))
      throw CollectiveError(fmt::format("held-out loss {}: {}", loss, describe_non_finite(global)));
    loss_sum += loss;
  }
  return loss_sum / static_cast<double>(m_batches.validation_batches * m_config->batch.global * m_plan->shape.sequence);
}

void Trainer::logits(std::int64_t batch, Index micro_batch) {
  forward_only(batch, micro_batch);
  m_exec.fence("trainstone::train::logits: the caller reads them");
}

void Trainer::inject_fault(Part part, std::int64_t step) {
  if (step == 0 || step != m_config->faults.nan_step || to_string(part) != m_config->faults.nan_part) return;
  with_storage(m_model.storage(), [&]<class T>() {
    Vector<T> const first_value(m_model.output(part).as<T>().data(), 1);
    Kokkos::deep_copy(m_exec, first_value, from_float<T>(std::numeric_limits<float>::quiet_NaN()));
  });
}

/// A sum that no plan knows; a barrier where the others add up losses, which the order check ends.
void Trainer::inject_unplanned_calls(std::int64_t step) {
  FaultConfig const& faults = m_config->faults;
  if (faults.extra_message) control_all_reduce(m_exec, *m_communicator, Operation::sum, 1.0);
  if (step == faults.order_step && m_plan->rank == faults.order_rank) barrier(*m_communicator);
}

void Trainer::require_equal_replicas(std::int64_t step) {
  m_engine.finish();
  ReplicaComparison const compared = compare_replicas(m_exec, *m_communicator, m_engine);
  if (compared.equal) return;
  throw CollectiveError(fmt::format("step {}: parameters differ between ranks: {}", step,
                                    describe_replicas(*m_communicator, compared.hash)),
                        ExitCode::verification_failed);
}

ParameterChanges Trainer::parameter_changes() {
  Vector<double> const sum(m_loss_sums.data(), 1);
  return trainstone::parameter_changes(m_exec, *m_communicator, m_engine, m_plan->table,
                                       static_cast<std::uint64_t>(m_config->data.seed), sum);
}

/// After total_loss() of the global batch; collective.
std::string Trainer::describe_non_finite(GlobalBatch const& global) {
  m_engine.finish();
  auto const is_finite = [](double loss) { return std::isfinite(loss); };
  std::int64_t const bad = std::ranges::find_if_not(m_turn_losses, is_finite) - m_turn_losses.begin();
  std::int64_t const turn = control_all_reduce(m_exec, *m_communicator, Operation::min, bad);
  if (turn < m_plan->accumulation)
    return fmt::format("the first output that is not finite is that of part \"{}\"",
                       to_string(first_bad_part(global, turn)));
  Index const group =
      control_all_reduce(m_exec, *m_communicator, Operation::max, m_engine.find_non_finite_group(m_count));
  if (group < 0) return "the norm overflows, all gradients are finite";
  return fmt::format("all outputs are finite, the gradient of \"{}\" is not",
                     m_plan->table.groups()[static_cast<std::size_t>(group)].name);
}

/// All ranks run the turn forward once more, and those look at every output whose loss was not finite: a step has no
/// time to look.
Part Trainer::first_bad_part(GlobalBatch const& global, Index turn) {
  m_loader.begin(m_exec);
  play(m_program.evaluation, global, turn);
  // the head's logits are already their gradient: it is the one that is left when no output before it is bad
  PartTable const& parts = m_plan->parallel.parts;
  Index const head = parts.size() - 1;
  Index bad = std::isfinite(m_turn_losses[static_cast<std::size_t>(turn)]) ? head : 0;
  while (bad < head && !has_non_finite(m_model.output(parts[bad]).flat())) ++bad;
  return parts[control_all_reduce(m_exec, *m_communicator, Operation::min, bad)];
}

bool Trainer::has_non_finite(ConstStoredVector values) {
  with_storage(values.storage, [&]<class T>() { count_non_finite<T>(m_exec, values.as<T>(), m_count); });
  return copy_to_host(m_exec, m_count, "trainstone::train::has_non_finite: the host decides")[0] > 0;
}

bool Trainer::parameters_are_finite() {
  m_engine.finish();
  for (Index group = 0; group < std::ssize(m_plan->table.groups()); ++group)
    if (has_non_finite(m_engine.parameter_share(group))) return false;
  return true;
}

} // namespace trainstone
