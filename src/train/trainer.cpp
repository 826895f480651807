#include "train/trainer.hpp"

#include "comm/control.hpp"
#include "core/host_copy.hpp"
#include "core/region.hpp"
#include "kernels/norm.hpp"
#include "train/batches.hpp"
#include "train/learning_rate.hpp"

#include <chrono>
#include <cmath>
#include <limits>
#include <ranges>
#include <utility>

namespace trainstone {

namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

Allocation allocate(MemoryLedger& ledger, MemoryCategory category, std::string const& label,
                    std::vector<PlannedTensor> const& tensors) {
  return Allocation(ledger, category, label, total_bytes(tensors));
}

Allocation allocate_gemm_scratch(MemoryLedger& ledger, RunConfig const& config, RunPlan const& plan) {
  return Allocation(ledger, MemoryCategory::buffers, "GEMM scratch",
                    Arena::footprint(gemm_scratch_bytes(config.model, plan.shape, plan.gemm)));
}

ModelState make_state(ExecutionSpace const& exec, Communicator const& communicator, MemoryLedger& ledger,
                      RunPlan const& plan) {
  if (plan.reduction.shared_memory) return ModelState(exec, communicator, ledger, plan.table);
  return ModelState(exec, ledger, plan.table);
}

Activations bind_all(RunConfig const& config, RunPlan const& plan, Allocation const& memory) {
  Arena arena(memory.bytes());
  Activations all = bind_activations(config.model, plan.shape, arena);
  TRAINSTONE_REQUIRE(arena.used() == arena.capacity(), "{} of {} planned bytes of activations are used", arena.used(),
                     arena.capacity());
  return all;
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
      m_state(make_state(exec, communicator, ledger, plan)),
      m_activation_memory(
          allocate(ledger, MemoryCategory::activations, "activations", activation_plan(config.model, plan.shape))),
      m_gemm_memory(allocate_gemm_scratch(ledger, config, plan)),
      m_buffer_memory(allocate(ledger, MemoryCategory::buffers, "buffers", buffer_plan(plan))),
      m_data_memory(allocate(ledger, MemoryCategory::data, "data", data_plan(plan.shape))),
      m_buffers(m_buffer_memory.bytes()),
      m_data(m_data_memory.bytes()),
      m_gemm(plan.gemm, m_gemm_memory.bytes()),
      m_engine(exec, communicator, plan.table, m_state, plan.reduction, m_buffers),
      m_loader(plan.shape, config.model.vocab, m_data),
      m_model(config.model, plan.table, plan.shape, bind_all(config, plan, m_activation_memory), m_gemm),
      m_loss_sum(m_buffers.vector<double>("loss sum", 1)),
      m_units(units(config.model.layers)) {
  for (Arena const* arena : {&m_buffers, &m_data})
    TRAINSTONE_REQUIRE(arena->used() == arena->capacity(), "{} of {} planned bytes are used", arena->used(),
                       arena->capacity());
  for (Index group = 0; group < std::ssize(plan.table.groups()); ++group)
    initialize_parameters(exec, plan.table, group, static_cast<std::uint64_t>(config.data.seed),
                          of_group(m_state.parameters(), group));
}

Vector<float> Trainer::of_group(Vector<float> flat, Index group) const {
  ParameterGroup const& entry = m_plan->table.groups()[static_cast<std::size_t>(group)];
  return Vector<float>(flat.data() + entry.offset, static_cast<std::size_t>(entry.padded));
}

Index Trainer::my_micro_batch(Index turn) const {
  return micro_batch_of(m_communicator->rank(), m_communicator->size(), turn,
                        m_plan->accumulation * m_communicator->size());
}

StepReport Trainer::step(std::int64_t step) {
  auto const start = std::chrono::steady_clock::now();
  PerPhase<double> const phases_before = counters().seconds;
  LearningRate const schedule{m_config->schedule.type, m_config->optimizer.learning_rate, m_config->schedule.warmup,
                              m_steps, m_config->schedule.final_lr_fraction};

  StepReport report;
  report.step = step;
  report.steps = m_steps;
  report.learning_rate = schedule.at(step - 1);
  report.tokens = m_config->batch.global * m_plan->shape.sequence;
  report.loss = gradient(step);
  report.norm = m_engine.update(m_exec, m_config->optimizer, report.learning_rate, step);
  m_exec.fence("trainstone::train::step: the step is timed");
  if (!std::isfinite(report.loss) || !std::isfinite(report.norm))
    throw CollectiveError(
        fmt::format("step {}: loss {}, gradient norm {}: {}", step, report.loss, report.norm, describe_non_finite()));

  report.seconds = seconds_since(start);
  for (Phase phase : phases) report.phase_seconds[phase] = counters().seconds[phase] - phases_before[phase];
  report.exposed_communication_seconds = report.phase_seconds[Phase::communication]; // nothing overlaps yet
  return report;
}

double Trainer::gradient(std::int64_t step) {
  double loss_sum = 0;
  m_first_bad_unit = -1;
  for (Index turn = 0; turn < m_plan->accumulation; ++turn) loss_sum += forward_backward(step, turn);
  m_engine.reduce();
  return mean_over_ranks(loss_sum, static_cast<double>(m_config->batch.global * m_plan->shape.sequence));
}

double Trainer::forward_backward(std::int64_t step, Index turn) {
  MicroBatch batch = m_loader.load(m_exec, m_batches.training, step - 1, my_micro_batch(turn));
  batch.gradient_scale = 1.0f / static_cast<float>(m_config->batch.global * m_plan->shape.sequence);
  double const loss_sum = forward_and_loss(batch, LossMode::training, step);
  Write const write = turn == 0 ? Write::overwrite : Write::add;
  for (Unit unit : m_units | std::views::reverse) {
    Index const group = group_read_by(unit);
    m_model.backward(m_exec, unit, batch, of_group(m_state.parameters(), group),
                     {of_group(m_state.gradients(), group), write});
  }
  return loss_sum;
}

double Trainer::forward_and_loss(MicroBatch const& batch, LossMode mode, std::int64_t step) {
  for (Unit unit : m_units) {
    m_model.forward(m_exec, unit, batch, of_group(m_state.parameters(), group_read_by(unit)));
    inject_fault(unit, step);
  }
  m_model.loss(m_exec, batch, mode);
  sum(m_exec, m_model.activations().losses, m_loss_sum);
  double const loss_sum = copy_to_host(m_exec, m_loss_sum, "trainstone::train::loss: the host reports it")[0];
  if (!std::isfinite(loss_sum)) note_non_finite_unit();
  return loss_sum;
}

double Trainer::mean_over_ranks(double local_sum, double tokens) {
  return control_all_reduce(m_exec, *m_communicator, Operation::sum, local_sum) / tokens;
}

double Trainer::validate() {
  constexpr std::int64_t no_step = 0; // faults are for training steps
  double loss_sum = 0;
  m_first_bad_unit = -1;
  for (std::int64_t batch = 0; batch < m_batches.validation_batches; ++batch)
    for (Index turn = 0; turn < m_plan->accumulation; ++turn)
      loss_sum += forward_and_loss(m_loader.load(m_exec, m_batches.validation, batch, my_micro_batch(turn)),
                                   LossMode::evaluation, no_step);
  double const loss = mean_over_ranks(
      loss_sum, static_cast<double>(m_batches.validation_batches * m_config->batch.global * m_plan->shape.sequence));
  if (!std::isfinite(loss)) throw CollectiveError(fmt::format("held-out loss {}: {}", loss, describe_non_finite()));
  return loss;
}

void Trainer::logits(std::int64_t batch, Index micro_batch) {
  MicroBatch const loaded = m_loader.load(m_exec, m_batches.training, batch, micro_batch);
  for (Unit unit : m_units) m_model.forward(m_exec, unit, loaded, of_group(m_state.parameters(), group_read_by(unit)));
  m_exec.fence("trainstone::train::logits: the caller reads them");
}

void Trainer::inject_fault(Unit unit, std::int64_t step) {
  if (step == 0 || step != m_config->faults.nan_step || to_string(unit) != m_config->faults.nan_unit) return;
  Vector<float> const first_value(m_model.output(unit).data(), 1);
  Kokkos::deep_copy(m_exec, first_value, std::numeric_limits<float>::quiet_NaN());
}

void Trainer::note_non_finite_unit() {
  if (m_first_bad_unit >= 0) return; // an earlier micro-batch of this step was already bad
  for (std::size_t i = 0; i < m_units.size(); ++i) {
    Matrix<float> const output = m_model.output(m_units[i]);
    // the head's logits are already their gradient: it is the one that is left when no output before it is bad
    bool const is_head = m_units[i].kind == UnitKind::head;
    if (is_head || m_engine.has_non_finite(m_exec, Vector<float>(output.data(), output.size()))) {
      m_first_bad_unit = static_cast<std::int64_t>(i);
      return;
    }
  }
}

std::string Trainer::describe_non_finite() {
  std::int64_t const none = std::ssize(m_units);
  std::int64_t const unit =
      control_all_reduce(m_exec, *m_communicator, Operation::min, m_first_bad_unit >= 0 ? m_first_bad_unit : none);
  if (unit < none)
    return fmt::format("the first output that is not finite is that of unit \"{}\"",
                       to_string(m_units[static_cast<std::size_t>(unit)]));
  std::int64_t const group = m_engine.find_non_finite_group(m_exec);
  if (group < 0) return "the norm overflows, all gradients are finite";
  return fmt::format("all outputs are finite, the gradient of \"{}\" is not",
                     m_plan->table.groups()[static_cast<std::size_t>(group)].name);
}

bool Trainer::parameters_are_finite() { return !m_engine.has_non_finite(m_exec, m_state.parameters()); }

} // namespace trainstone
