// How the trainer plays a step program: a few lines for each act.

#include "comm/execution/buffers.hpp"
#include "comm/execution/control.hpp"
#include "core/clock.hpp"
#include "core/host_copy.hpp"
#include "core/launch.hpp"
#include "core/timeline.hpp"
#include "kernels/norm.hpp"
#include "train/loss_total.hpp"
#include "train/trainer.hpp"

#include <limits>
#include <utility>

namespace trainstone {

namespace {

std::optional<Index> piece_of(Instruction const& instruction) {
  return instruction.piece == Instruction::none ? std::nullopt : std::optional(instruction.piece);
}

/// Behind the instructions from `first` on that only compute.
std::size_t end_of_run(std::vector<Instruction> const& instructions, std::size_t first) {
  while (first < instructions.size() && computes(instructions[first].act)) ++first;
  return first;
}

} // namespace

template <class Body>
void Trainer::timed(Instruction const& instruction, Body const& body) {
  if (!m_instruction_listener) return body();
  m_exec.fence("trainstone::train::timed: an instruction is timed");
  SteadyTime const begin = std::chrono::steady_clock::now();
  body();
  m_exec.fence("trainstone::train::timed: an instruction was timed");
  m_instruction_listener(instruction, seconds_since(begin));
}

template <class Body>
void Trainer::paced(Instruction const& instruction, Body const& body) {
  double const least = m_pace.least_seconds(instruction, m_plan->parallel.parts);
  SteadyTime const begin = std::chrono::steady_clock::now();
  body();
  if (least == 0) return;
  m_exec.fence("trainstone::train::paced: the instruction sleeps for the rest of its time");
  sleep_until_passed(begin, least);
}

/// \param[in] first_micro_batch  is added to the numbers of all micro-batches
void Trainer::play(std::vector<Segment> const& segments, PlayedStep& played, Index first_micro_batch) {
  BetweenLaunches::Scoped const driven = m_engine.drive_between_launches();
  m_pace.begin(played.step);
  bool const repeats = repeats_runs(played);
  for (Segment const& segment : segments)
    for (Index time = first_micro_batch; time < first_micro_batch + segment.times; ++time)
      for (std::size_t i = 0; i < segment.instructions.size(); ++i) {
        if (repeats && computes(segment.instructions[i].act)) {
          i = play_run(segment.instructions, i, time, played);
          continue;
        }
        Instruction const instruction = later(segment.instructions[i], time);
        Span const span(Lane::compute, [&] { return to_string(instruction, m_plan->parallel); });
        timed(instruction, [&] { paced(instruction, [&] { play(instruction, played); }); });
      }
}

/// Whether instructions that repeat may be computed by graphs: nobody looks at one of them alone.
bool Trainer::repeats_runs(PlayedStep const& played) const {
  return m_config->kernels.graphs && !m_instruction_listener && !played.after_forward && !played.after_loss &&
         m_config->faults.nan_step == 0 && !m_config->faults.has_pace() && may_start_graphs();
}

/// Counts the runs of a step twice, because a new scale of the loss makes others of them, and those of a validation
/// once.
std::size_t Trainer::runs_to_remember() const {
  auto const runs_of = [](std::vector<Segment> const& segments) {
    Index runs = 0;
    for (Segment const& segment : segments)
      for (std::size_t i = 0; i < segment.instructions.size(); ++i) {
        if (!computes(segment.instructions[i].act)) continue;
        runs += segment.times;
        i = end_of_run(segment.instructions, i);
      }
    return static_cast<std::size_t>(runs);
  };
  auto const held_out = static_cast<std::size_t>(m_plan->held_out_micro_batches);
  return 2 * runs_of(m_program.step) + held_out * runs_of(m_program.evaluation);
}

/// Computes the instructions from `first` on that follow one another. \return the last one's place
std::size_t Trainer::play_run(std::vector<Instruction> const& instructions, std::size_t first, Index time,
                              PlayedStep& played) {
  ComputedRun run{{}, played.mode, played.held_out};
  std::size_t const end = end_of_run(instructions, first);
  for (std::size_t i = first; i < end; ++i) {
    Instruction const one = later(instructions[i], time);
    note_begin(one, played);
    run.steps.push_back({one, m_loaded[static_cast<std::size_t>(one.micro_batch)]});
    note_end(one, played);
  }
  Span const span(Lane::compute, [&] {
    return fmt::format("{} to {}", to_string(run.steps.front().instruction, m_plan->parallel),
                       to_string(run.steps.back().instruction, m_plan->parallel));
  });
  m_runs.play(m_exec, std::move(run), [this](ComputedRun const& all) {
    for (ComputedRun::Step const& step : all.steps) {
      compute(step.instruction, step.batch, all.mode, all.held_out);
      add_up_rows(step.instruction, all.held_out);
    }
  });
  return end - 1;
}

void Trainer::play(Instruction const& instruction, PlayedStep& played) {
  switch (instruction.act) {
  case Act::load: return load(played, instruction.micro_batch);
  case Act::forward:
  case Act::recompute:
  case Act::loss:
  case Act::backward:
    note_begin(instruction, played);
    compute(instruction, m_loaded[static_cast<std::size_t>(instruction.micro_batch)], played.mode, played.held_out);
    look_at_output(instruction, played);
    add_up_rows(instruction, played.held_out);
    return note_end(instruction, played);
  case Act::agree: return agree(played);
  case Act::norm: played.norm = m_engine.gradient_norm(); return;
  case Act::update:
    if (instruction.subject != Instruction::none) return m_engine.execute(instruction);
    return m_engine.update(m_config->optimizer, played.update.value());
  case Act::wait: return wait(instruction, played);
  case Act::reduce:
    if (played.before_push) {
      m_exec.fence("trainstone::train::before_push: servers wait for no kernels of a worker");
      std::exchange(played.before_push, nullptr)();
    }
    return m_engine.execute(instruction);
  default: return m_engine.execute(instruction);
  }
}

void Trainer::load(PlayedStep const& played, Index micro_batch) {
  BatchSource const& source = *played.source;
  MicroBatch& batch = m_loaded[static_cast<std::size_t>(micro_batch)];
  batch = m_loader.load(m_exec, m_scatter ? m_scatter->source(source, micro_batch) : source, played.batch,
                        number_of(played, micro_batch), micro_batch, model_of(played.held_out).shape().rows());
  if (played.mode == LossMode::evaluation) return;
  batch.gradient_scale = played.gradient_scale ? *played.gradient_scale : gradient_scale(played.step);
  if (played.step > 0 && m_config->model_options.dropout > 0) batch.dropout = dropout(played, micro_batch);
}

Gpt& Trainer::model_of(bool held_out) { return held_out && m_held_out_model ? *m_held_out_model : m_model; }

/// Of this rank.
Index Trainer::micro_batches_of(PlayedStep const& played) const {
  return played.held_out ? m_plan->held_out_micro_batches : m_plan->accumulation;
}

/// Of a micro-batch of this rank, among those of a global batch.
Index Trainer::number_of(PlayedStep const& played, Index micro_batch) const {
  StateLayout const& layout = m_plan->parallel.layout;
  Index const each = micro_batches_of(played);
  return (m_fellows ? m_fellows->worker * each * layout.mesh.data() : 0) +
         layout.micro_batch(micro_batch, layout.rank, each);
}

/// What a token's loss is multiplied with where its gradient begins.
float Trainer::gradient_scale(std::int64_t step) const {
  if (m_faults.overflows(step)) return std::numeric_limits<float>::infinity();
  return static_cast<float>(m_scaler.scale() / static_cast<double>(m_config->batch.global * m_plan->shape.sequence));
}

/// Samples are counted on from step to step: no epoch sees the masks of another one.
Dropout Trainer::dropout(PlayedStep const& played, Index micro_batch) const {
  BatchConfig const& batch = m_config->batch;
  std::int64_t const global = batch.global * (m_fellows ? m_fellows->workers : 1);
  std::int64_t const first = (played.step - 1) * global + number_of(played, micro_batch) * batch.micro;
  return {.rate = m_config->model_options.dropout,
          .seed = static_cast<std::uint64_t>(m_config->data.seed),
          .first_sample = static_cast<std::uint64_t>(first)};
}

/// Starts the kernels of an instruction, which depend on these arguments alone.
void Trainer::compute(Instruction const& instruction, MicroBatch const& batch, LossMode mode, bool held_out) {
  PartTable const& parts = m_plan->parallel.parts;
  Gpt& model = model_of(held_out);
  if (instruction.act == Act::loss) return loss(instruction, batch, mode, model);
  if (instruction.act == Act::backward) return backward(instruction, batch);
  ConstStoredVector const parameters = m_engine.parameters(parts.unit(instruction.subject), instruction.slot);
  Part const part = parts[instruction.subject];
  if (instruction.act == Act::forward)
    model.forward(m_exec, part, batch, parameters, piece_of(instruction), instruction.buffers);
  else
    m_model.recompute(m_exec, part, batch, parameters, piece_of(instruction), instruction.buffers);
}

void Trainer::loss(Instruction const& instruction, MicroBatch const& batch, LossMode mode, Gpt& model) {
  PartTable const& parts = m_plan->parallel.parts;
  ConstStoredVector parameters;
  if (parts.options().splits_loss()) parameters = m_engine.parameters(parts.unit(parts.size() - 1), instruction.slot);
  model.loss(m_exec, batch, mode, parameters, piece_of(instruction), instruction.buffers);
}

void Trainer::backward(Instruction const& instruction, MicroBatch const& batch) {
  Part const part = m_plan->parallel.parts[instruction.subject];
  Index const unit = m_plan->parallel.parts.unit(instruction.subject);
  bool const begins = m_plan->parallel.parts.begins(instruction.subject) && begins_pass(instruction);
  bool const reads = part.kind != PartKind::embed;
  ConstStoredVector const parameters =
      reads ? m_engine.parameters(unit, instruction.slot) : m_engine.parameters(unit, 0).part(0, 0);
  m_model.backward(m_exec, part, batch, parameters, m_engine.gradient_target(unit, instruction.micro_batch, begins),
                   piece_of(instruction), instruction.buffers);
}

/// The losses of a micro-batch, when all its rows have theirs.
void Trainer::add_up_rows(Instruction const& instruction, bool held_out) {
  if (instruction.act != Act::loss || !ends_pass(instruction, m_plan->parallel.parts)) return;
  sum(m_exec, model_of(held_out).losses(), Vector<double>(m_loss_sums.data() + instruction.micro_batch, 1));
}

void Trainer::note_begin(Instruction const& instruction, PlayedStep const& played) {
  bool const keeps = instruction.act == Act::forward && played.mode == LossMode::training; // evaluations keep nothing
  if (keeps) m_slots.begin(instruction);
}

/// Lets those who asked for it look at what has been computed, and change it.
void Trainer::look_at_output(Instruction const& instruction, PlayedStep const& played) {
  PartTable const& parts = m_plan->parallel.parts;
  if (instruction.act == Act::forward && ends_pass(instruction, parts)) {
    Part const part = parts[instruction.subject];
    StoredMatrix const output = model_of(played.held_out).output(part, instruction.buffers);
    m_faults.after_forward(m_exec, part, played.step, output);
    if (played.after_forward) played.after_forward(part, output);
  }
  if (instruction.act == Act::loss && played.after_loss && ends_chunk(instruction, parts)) {
    Index const rows = model_of(played.held_out).shape().rows() / parts.options().loss_chunks,
                begin = chunk_of(instruction, parts).value_or(0) * rows;
    played.after_loss(instruction.micro_batch, {begin, begin + rows});
  }
}

void Trainer::note_end(Instruction const& instruction, PlayedStep& played) {
  if (instruction.act != Act::backward) return;
  m_slots.end(instruction);
  if (instruction.subject == 0 && instruction.micro_batch + 1 == m_plan->accumulation) played.backward_ends = true;
}

/// What first comes behind the last backward waits for its kernels, without their time.
void Trainer::wait_for_backward(PlayedStep& played) {
  if (!std::exchange(played.backward_ends, false)) return;
  InstanceEvent const backward(m_exec);
  while (!backward.is_done()) m_engine.advance();
  played.backward_end = std::chrono::steady_clock::now();
}

void Trainer::wait(Instruction const& instruction, PlayedStep& played) {
  wait_for_backward(played);
  SteadyTime const begin = std::chrono::steady_clock::now();
  m_engine.execute(instruction);
  bool const is_of_last_step = m_plan->parallel.by_priority() && !played.backward_end; // before the next forward
  if (is_of_last_step) played.uncovered_seconds += seconds_since(begin);
}

/// Requests travel with the losses of a training step.
void Trainer::agree(PlayedStep& played) {
  if (m_plan->parallel.by_priority()) wait_for_backward(played); // nothing else does
  if (played.backward_end) played.uncovered_seconds += seconds_since(*played.backward_end);
  played.backward_ends = false;
  if (played.step > 0) m_faults.before_losses(m_exec, *m_communicator, played.step);
  add_up_losses(played);
}

/// Over all ranks: whoever ran a micro-batch, the sum has the same bits. The requests of a training step travel behind
/// the losses, as a value of each rank.
void Trainer::add_up_losses(PlayedStep& played) {
  StateLayout const& layout = m_plan->parallel.layout;
  Index const each = micro_batches_of(played);
  played.losses.assign(static_cast<std::size_t>(each), 0.0); // without the head
  if (m_plan->parallel.has_losses())
    played.losses = copy_to_host(m_exec, m_loss_sums, "trainstone::train::loss: the host reports it");
  played.losses.resize(static_cast<std::size_t>(each));
  auto const count = static_cast<std::size_t>(each * layout.mesh.data());
  bool const has_requests = played.step > 0;
  std::vector<double> values(count + (has_requests ? static_cast<std::size_t>(m_plan->ranks) : 0), 0.0);
  bool const counts = m_plan->computes() && // the other ranks of a tensor group have the same
                      layout.mesh.leads_sharers(m_plan->rank);
  for (Index micro_batch = 0; counts && micro_batch < each; ++micro_batch)
    values[static_cast<std::size_t>(layout.micro_batch(micro_batch, layout.rank, each))] =
        played.losses[static_cast<std::size_t>(micro_batch)];
  if (has_requests && played.ask) values[count + static_cast<std::size_t>(m_plan->rank)] = to_number(played.ask());
  bool const goes_on = m_plan->parallel.by_priority(); // what is pushed: servers agree when they have some of it
  control_all_reduce(m_exec, *m_communicator, Operation::sum, values, goes_on ? &m_engine.queue() : nullptr);
  played.requests = {};
  for (std::size_t i = count; i < values.size(); ++i) played.requests |= requests_of(values[i]);
  values.resize(count);
  played.total_loss = total_of_losses(std::move(values));
}

/// The load, by which rank 0 may send its data to all ranks, is done here for this rank alone.
void Trainer::evaluate(std::int64_t batch, Index micro_batch) {
  m_loader.begin(m_exec);
  m_loaded.front() = m_loader.load(m_exec, m_batches.training, batch, micro_batch, 0, m_plan->shape.rows());
  std::vector<Segment> segments = m_program.evaluation;
  for (Segment& segment : segments)
    std::erase_if(segment.instructions, [](Instruction const& one) { return one.act == Act::load; });
  PlayedStep played{.source = &m_batches.training, .batch = batch, .mode = LossMode::evaluation};
  play(segments, played);
  m_exec.fence("trainstone::train::evaluate: the caller reads logits and losses");
}

} // namespace trainstone
