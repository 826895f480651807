// How the trainer plays a step program: a few lines for each act.

#include "comm/buffers.hpp"
#include "core/clock.hpp"
#include "core/launch.hpp"
#include "kernels/norm.hpp"
#include "train/trainer.hpp"

#include <utility>

namespace trainstone {

template <class Body>
void Trainer::timed(Instruction const& instruction, Body const& body) {
  if (!m_instruction_listener) return body();
  m_exec.fence("trainstone::train::timed: an instruction is timed");
  SteadyTime const begin = std::chrono::steady_clock::now();
  body();
  m_exec.fence("trainstone::train::timed: an instruction was timed");
  m_instruction_listener(instruction, seconds_since(begin));
}

/// \param[in] first_micro_batch  is added to the numbers of all micro-batches
void Trainer::play(std::vector<Segment> const& segments, GlobalBatch const& global, Index first_micro_batch) {
  BetweenLaunches::Scoped const driven = m_engine.drive_between_launches();
  for (Segment const& segment : segments)
    for (Index time = first_micro_batch; time < first_micro_batch + segment.times; ++time)
      for (Instruction const& one : segment.instructions) {
        Instruction const instruction = later(one, time);
        timed(instruction, [&] { play(instruction, global); });
      }
}

void Trainer::play(Instruction const& instruction, GlobalBatch const& global) {
  switch (instruction.act) {
  case Act::load: {
    m_loaded[static_cast<std::size_t>(instruction.micro_batch)] = load(global, instruction.micro_batch);
    return;
  }
  case Act::forward: return forward(instruction, global);
  case Act::loss: return loss(instruction, global);
  case Act::backward: return backward(instruction);
  case Act::agree: return agree(global);
  case Act::norm: m_norm = m_engine.gradient_norm(); return;
  case Act::update: return m_engine.update(m_config->optimizer, m_update_numbers);
  case Act::wait: return wait(instruction);
  default: return m_engine.execute(instruction);
  }
}

void Trainer::forward(Instruction const& instruction, GlobalBatch const& global) {
  Part const part = m_plan->parallel.parts[instruction.subject];
  m_model.forward(m_exec, part, m_loaded[static_cast<std::size_t>(instruction.micro_batch)],
                  m_engine.parameters(group_of(part), instruction.slot));
  inject_fault(part, global.step);
}

void Trainer::loss(Instruction const& instruction, GlobalBatch const& global) {
  m_model.loss(m_exec, m_loaded[static_cast<std::size_t>(instruction.micro_batch)], global.mode);
  if (global.first_positions > 0) keep_first_positions(global, instruction.micro_batch);
  sum(m_exec, m_model.losses(), Vector<double>(m_loss_sums.data() + instruction.micro_batch, 1));
}

void Trainer::backward(Instruction const& instruction) {
  Part const part = m_plan->parallel.parts[instruction.subject];
  Index const group = group_of(part);
  std::optional<Index> piece;
  if (instruction.piece != Instruction::none) piece = instruction.piece;
  bool const reads = part.kind != PartKind::embed;
  ConstStoredVector const parameters =
      reads ? m_engine.parameters(group, instruction.slot) : m_engine.parameters(group, 0).part(0, 0);
  m_model.backward(m_exec, part, m_loaded[static_cast<std::size_t>(instruction.micro_batch)], parameters,
                   m_engine.gradient_target(group, instruction.micro_batch), piece);
  if (!reads && instruction.micro_batch + 1 == m_plan->accumulation) m_backward_ends = true;
}

/// The first wait behind the last backward: waits for the kernels of backward, too, without their time.
void Trainer::wait(Instruction const& instruction) {
  if (std::exchange(m_backward_ends, false)) {
    InstanceEvent const backward(m_exec);
    while (!backward.is_done()) m_engine.advance();
    m_backward_end = std::chrono::steady_clock::now();
  }
  m_engine.execute(instruction);
}

/// Requests travel with the losses of a training step.
void Trainer::agree(GlobalBatch const& global) {
  m_uncovered_seconds = m_backward_end ? seconds_since(*m_backward_end) : 0;
  m_backward_end.reset();
  m_backward_ends = false;
  if (global.step == 0) {
    m_total_loss = total_loss(nullptr);
    return;
  }
  inject_unplanned_calls(global.step);
  m_requests = m_ask ? m_ask() : Requests();
  m_total_loss = total_loss(&m_requests);
}

/// Plays the evaluation of a micro-batch without its load, which is done here, and without its loss.
MicroBatch Trainer::forward_only(std::int64_t batch, Index micro_batch) {
  m_loader.begin(m_exec);
  m_loaded.front() = m_loader.load(m_exec, m_batches.training, batch, micro_batch, 0);
  std::vector<Segment> segments = m_program.evaluation;
  for (Segment& segment : segments)
    std::erase_if(segment.instructions,
                  [](Instruction const& one) { return one.act == Act::load || one.act == Act::loss; });
  constexpr std::int64_t no_step = 0;
  play(segments, {&m_batches.training, batch, LossMode::evaluation, no_step});
  return m_loaded.front();
}

} // namespace trainstone
