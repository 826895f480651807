#include "train/trainer.hpp"

#include "comm/execution/buffers.hpp"
#include "comm/execution/control.hpp"
#include "core/clock.hpp"
#include "core/host_copy.hpp"
#include "core/launch.hpp"
#include "parallel/engine/replica_check.hpp"
#include "parallel/program/passes.hpp"
#include "parallel/program/step_programs.hpp"
#include "train/diagnosis.hpp"
#include "train/learning_rate.hpp"

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

/// Of the model, with the slices that this rank has.
GptOptions const& options_of(RunPlan const& plan) { return plan.parallel.parts.options(); }

/// Of a validation whose micro-batches have another size. It has neither stages nor tensor ranks.
Activations bind_held_out(RunConfig const& config, RunPlan const& plan, Allocation const& memory) {
  Arena arena(memory.bytes());
  Activations all(config.model, plan.held_out_shape, arena, plan.storage().values, plan.held_out_options(),
                  plan.computed_stage(), plan.activation_copies(), nullptr);
  TRAINSTONE_REQUIRE(arena.used() == held_out_activations(plan, config.model),
                     "{} of {} planned bytes of a validation's activations are used", arena.used(),
                     held_out_activations(plan, config.model));
  return all;
}

Activations bind_all(RunConfig const& config, RunPlan const& plan, Allocation const& memory, ShardedEngine& engine) {
  bool const exchanges = plan.parallel.layout.mesh.shares_layers();
  Arena arena(memory.bytes()), exchanged = exchanges ? engine.exchanged_memory() : Arena();
  Activations all(config.model, plan.shape, arena, plan.storage().values, options_of(plan), plan.computed_stage(),
                  plan.activation_copies(), exchanges ? &exchanged : nullptr);
  auto const require_used = [](Arena const& used, std::uint64_t planned) {
    TRAINSTONE_REQUIRE(used.used() == planned, "{} of {} planned bytes of activations are used", used.used(), planned);
  };
  require_used(arena, training_activations(plan, config.model));
  require_used(exchanged, exchanged.capacity());
  return all;
}

/// What the ranks of a tensor group bring together.
ExchangedVectors exchanged_vectors(Gpt const& model, TensorPlan const& plan) {
  ExchangedVectors vectors;
  for (auto const& [exchange, planned] : plan.exchanges) vectors.emplace(exchange, model.exchanged(exchange));
  return vectors;
}

/// What messages between the stages of a pipeline use.
StageBuffers stage_buffers(Gpt const& model, PipelinePlan const& pipeline) {
  StageBuffers buffers;
  ActivationCopies const copies = pipeline.copies();
  for (Index number = 0; number < copies.inputs; ++number) buffers.inputs.push_back(model.input(number).flat());
  for (Index number = 0; number < copies.gradients; ++number)
    buffers.gradients.push_back(model.stream_gradient(number).flat());
  for (Index chunk = 0; chunk < pipeline.shape.chunks; ++chunk) {
    std::vector<StoredVector>& of_chunk = buffers.outputs.emplace_back();
    if (!sends(pipeline.shape, MessageKind::activation, pipeline.stage, chunk)) continue;
    for (Index slot = 0; slot < copies.slots; ++slot) of_chunk.push_back(model.chunk_output(chunk, slot).flat());
  }
  return buffers;
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
                 RunPlan const& plan, TrainingBatches batches, std::int64_t steps,
                 std::optional<FellowWorkers> const& fellows)
    : m_exec(exec),
      m_communicator(&communicator),
      m_fellows(fellows),
      m_workers{&communicator},
      m_config(&config),
      m_plan(&plan),
      m_batches(std::move(batches)),
      m_steps(steps),
      m_activation_memory(
          allocate(ledger, MemoryCategory::activations, "activations", planned_activations(plan, config.model))),
      m_gemm_memory(ledger, MemoryCategory::buffers, "GEMM scratch", gemm_scratch(plan, config.model)),
      m_buffer_memory(allocate(ledger, MemoryCategory::buffers, "buffers", buffer_plan(plan))),
      m_data_memory(allocate(ledger, MemoryCategory::data, "data", data_plan(plan))),
      m_pinned_memory(ledger, "staging", total_bytes(engine_pinned_buffers(plan.parallel))),
      m_mirrors(ledger, "mirrors of data", total_bytes(mirror_plan(plan)), MemoryCategory::data),
      m_buffers(m_buffer_memory.bytes()),
      m_data(m_data_memory.bytes()),
      m_gemm(plan.gemm, m_gemm_memory.bytes()),
      m_engine(exec, communicator, ledger, plan.parallel, plan.table, m_buffers, m_pinned_memory),
      m_loader(plan.computes() ? plan.accumulation * plan.shape.rows() : 0,
               plan.computes() ? plan.most_micro_batches() : 0, config.model.vocab, m_data, m_mirrors),
      m_model(config.model, plan.table, plan.shape, bind_all(config, plan, m_activation_memory, m_engine), m_gemm,
              options_of(plan)),
      m_program(make_step_program(plan.parallel)),
      m_loaded(static_cast<std::size_t>(plan.most_micro_batches())),
      m_loss_sums(m_buffers.vector<double>("loss sums", plan.most_micro_batches())),
      m_count(m_buffers.vector<std::int64_t>("non-finite count", 1)),
      m_faults(config.faults, fellows ? fellows->rank : plan.rank),
      m_pace(config.faults, fellows ? fellows->rank : plan.rank),
      m_scaler(config.precision),
      m_slots(plan.parallel.parts),
      m_runs(runs_to_remember()) {
  if (plan.batch_scatter) m_scatter.emplace(exec, communicator, plan, m_data, m_mirrors);
  if (plan.evaluates_apart() && plan.computes())
    m_held_out_model.emplace(config.model, plan.table, plan.held_out_shape,
                             bind_held_out(config, plan, m_activation_memory), m_gemm, plan.held_out_options());
  for (Arena const* arena : {&m_buffers, &m_data})
    TRAINSTONE_REQUIRE(arena->used() == arena->capacity(), "{} of {} planned bytes are used", arena->used(),
                       arena->capacity());
  for (PinnedMemory const* pinned : {&m_pinned_memory, &m_mirrors})
    TRAINSTONE_REQUIRE(pinned->used() == pinned->capacity(), "{} of {} planned pinned bytes are used", pinned->used(),
                       pinned->capacity());
  if (plan.parallel.layout.mesh.shares_layers())
    m_engine.prepare_exchanges(exchanged_vectors(m_model, plan.parallel.tensor));
  if (plan.parallel.pipeline.has_stages()) m_engine.prepare_messages(stage_buffers(m_model, plan.parallel.pipeline));
  if (fellows) m_answer = {Segment{publication_after_update(plan.parallel)}};
  if (fellows && plan.parallel.layout.serves())
    m_program.update = {Segment{{{.act = Act::update}}}}; // it answers apart
  if (config.tensor_ranks_alone * config.feature_ranks_alone > 1)
    clear_activations(); // nobody brings the rows of others
  set_initial_parameters();
}

void Trainer::clear_activations() {
  Vector<std::byte> const all = m_activation_memory.bytes();
  set_to_zero(m_exec, Vector<float>(reinterpret_cast<float*>(all.data()), all.size() / sizeof(float)));
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
  PlayedStep played = training_step(step);
  played.ask = ask;
  double const rate = learning_rate(step, m_fellows && m_plan->parallel.layout.serves());
  if (m_plan->parallel.by_priority()) played.update = update_numbers(rate, std::nullopt);
  gradient(played);
  StepReport report = end_step(step, played, rate);
  add_times(report, start, phases_before);
  return report;
}

StepReport Trainer::end_step(std::int64_t step, PlayedStep& played, double rate) {
  StepReport report;
  report.step = step;
  report.steps = m_steps;
  report.learning_rate = rate;
  report.tokens = m_config->batch.global * m_plan->shape.sequence;
  report.loss = mean_loss(played);
  report.requests = played.requests;
  bool const has_norm = !m_plan->parallel.by_priority();
  report.norm = has_norm ? played.norm / m_scaler.scale() : std::numeric_limits<double>::quiet_NaN();
  if (m_scaler.is_dynamic()) report.loss_scale = m_scaler.scale();
  report.skipped = m_scaler.is_dynamic() && !std::isfinite(report.norm);
  if (!has_norm && !std::isfinite(report.loss)) { // servers have updated with it
    m_engine.finish();                            // no rank ends while another one waits for what it has to send
    throw CollectiveError(fmt::format("step {}: loss {}; server.schedule \"fifo\" names the part", step, report.loss));
  }
  if (has_norm && (!std::isfinite(report.loss) || !(std::isfinite(report.norm) || report.skipped)))
    throw CollectiveError(fmt::format("{}: loss {}, gradient norm {}: {}", name_of(step), report.loss, report.norm,
                                      describe_non_finite(played)));
  if (!report.skipped) update(report, played);
  m_scaler.observe(report.skipped);
  if (m_scaler.skipped_in_a_row() > m_config->precision.most_skipped)
    throw CollectiveError(fmt::format("step {}: gradients overflow in the last {} steps, now at a loss scale of {}: {}",
                                      step, m_scaler.skipped_in_a_row(), m_scaler.scale(),
                                      describe_non_finite(played)));
  m_exec.fence("trainstone::train::step: the step is timed");
  report.phases_are_timed = launches_wait || kernel_table();
  report.exposed_communication_seconds = launches_wait ? 0 : played.uncovered_seconds;
  return report;
}

std::string Trainer::name_of(std::int64_t step) const {
  bool const is_push = m_fellows && m_plan->parallel.layout.serves();
  return is_push ? fmt::format("push {}, of worker {}", step, m_fellows->worker) : fmt::format("step {}", step);
}

double Trainer::learning_rate(std::int64_t step, bool counts_pushes) const {
  LearningRate const schedule{m_config->schedule.type, m_config->optimizer.learning_rate, m_config->schedule.warmup,
                              m_steps, m_config->schedule.final_lr_fraction};
  if (!counts_pushes) return schedule.at(step - 1);
  Rank const workers = m_fellows.value().workers;
  return m_config->parallel.lr_scale_of(workers) * schedule.at((step - 1) / workers);
}

StepReport Trainer::repeat_push(Rank worker, Index clock, std::int64_t update, std::function<void()> const& become_old,
                                std::function<void()> const& become_new) {
  m_fellows.value().worker = worker;
  PlayedStep played = training_step(clock + 1);
  become_old();
  gradient(played);
  become_new();
  return end_step(update, played, learning_rate(update, true));
}

void Trainer::add_worker(Communicator& ranks) {
  m_engine.add_partners(ranks);
  m_workers.push_back(&ranks);
  answer(m_workers.size() - 1); // which has just set its initial parameters
}

void Trainer::meet(std::size_t worker) {
  m_engine.meet(worker);
  m_communicator = m_workers.at(worker);
}

StepReport Trainer::apply_push(std::size_t worker, std::int64_t update) {
  meet(worker);
  m_fellows.value().worker = static_cast<Rank>(worker);
  return step(update);
}

void Trainer::refresh() {
  m_engine.outdate_parameters();
  PlayedStep played;
  play(m_answer, played);
}

void Trainer::answer(std::size_t worker) {
  meet(worker);
  PlayedStep played;
  play(m_answer, played);
}

void Trainer::finish(StepReport& report) {
  SteadyTime const start = std::chrono::steady_clock::now();
  PerPhase<double> const phases_before = counters().seconds;
  m_engine.finish();
  m_exec.fence("trainstone::train::finish: the step is timed");
  if (!launches_wait) report.exposed_communication_seconds += seconds_since(start);
  add_times(report, start, phases_before);
}

void Trainer::update(StepReport const& report, PlayedStep& played) {
  if (!played.update) played.update = update_numbers(report.learning_rate, report.norm);
  ++m_updates;
  play(m_program.update, played);
}

/// Of the next update. Without a norm nothing is clipped.
UpdateNumbers Trainer::update_numbers(double rate, std::optional<double> norm) const {
  double const factor = norm ? clip_factor(m_config->optimizer, *norm) : 1;
  return {rate, factor / m_scaler.scale(), m_updates + 1};
}

PlayedStep Trainer::training_step(std::int64_t step) const {
  return {.source = &m_batches.training, .batch = step - 1, .step = step, .before_push = m_before_push};
}

double Trainer::mean_loss(PlayedStep const& played) const {
  return played.total_loss / static_cast<double>(m_config->batch.global * m_plan->shape.sequence);
}

void Trainer::gradient(PlayedStep& played) {
  m_loader.begin(m_exec);
  m_slots.clear();
  if (m_stage_clock) {
    barrier(m_engine.communicators().of(Axis::pipeline));
    m_stage_clock->begin();
  }
  if (m_plan->parallel.by_priority()) m_engine.expect_updates(m_config->optimizer, played.update);
  play(m_program.step, played);
}

void Trainer::measure_stage(StageClock* clock) {
  m_stage_clock = clock;
  m_instruction_listener = nullptr;
  if (clock)
    m_instruction_listener = [clock](Instruction const& instruction, double seconds) {
      clock->add(instruction, seconds);
    };
}

double Trainer::gradient(std::int64_t step) {
  PlayedStep played = training_step(step);
  gradient(played);
  return mean_loss(played);
}

PlayedStep Trainer::play_held_out(std::int64_t number) {
  PlayedStep played{.source = &m_batches.validation, .batch = number, .mode = LossMode::evaluation, .held_out = true};
  m_loader.begin(m_exec);
  for (Index micro_batch = 0; micro_batch < micro_batches_of(played); ++micro_batch)
    play(m_program.evaluation, played, micro_batch);
  return played;
}

std::vector<double> Trainer::held_out_losses(std::int64_t number) {
  if (!m_plan->computes()) return {};
  play_held_out(number);
  return copy_to_host(m_exec, m_loss_sums, "trainstone::train::held_out_losses: the host adds them up");
}

double Trainer::validate() {
  double loss_sum = 0;
  for (std::int64_t number = 0; number < m_batches.validation_batches; ++number) {
    PlayedStep played = play_held_out(number);
    add_up_losses(played);
    if (!std::isfinite(played.total_loss))
      throw CollectiveError(fmt::format("held-out loss {}: {}", played.total_loss, describe_non_finite(played)));
    loss_sum += played.total_loss;
  }
  return loss_sum / static_cast<double>(m_batches.validation_batches * m_config->batch.global * m_plan->shape.sequence);
}

void Trainer::require_equal_replicas(std::int64_t step) {
  m_engine.finish();
  ReplicaComparison const compared = compare_replicas(m_exec, *m_communicator, m_engine);
  if (compared.equal) return;
  throw CollectiveError(
      fmt::format("step {}: parameters differ between ranks: {}", step, describe_replicas(*m_communicator, compared)),
      ExitCode::verification_failed);
}

ParameterChanges Trainer::parameter_changes() {
  Vector<double> const sum(m_loss_sums.data(), 1);
  return trainstone::parameter_changes(m_exec, *m_communicator, m_engine,
                                       static_cast<std::uint64_t>(m_config->data.seed), sum);
}

ParameterChanges Trainer::gradient_sizes() {
  Vector<double> const sum(m_loss_sums.data(), 1);
  return trainstone::gradient_sizes(m_exec, *m_communicator, m_engine, sum);
}

/// After the losses of the step are added up; collective.
std::string Trainer::describe_non_finite(PlayedStep const& played) {
  DiagnosedTraining const training{m_exec, *m_communicator, m_engine, m_config->model, m_count};
  return trainstone::describe_non_finite(training, played.losses, [&](Index micro_batch, LookAtOutput const& look) {
    PlayedStep again = played;
    again.after_forward = look;
    m_loader.begin(m_exec);
    play(m_program.evaluation, again, micro_batch);
  });
}

bool Trainer::parameters_are_finite() {
  m_engine.finish();
  for (Index group = 0; group < std::ssize(m_plan->table.groups()); ++group)
    if (has_non_finite(m_exec, m_engine.parameter_share(group), m_count)) return false;
  return true;
}

} // namespace trainstone
