// How the trainer plays a step program: a few lines for each act.

#include "comm/buffers.hpp"
#include "core/clock.hpp"
#include "core/launch.hpp"
#include "kernels/norm.hpp"
#include "train/trainer.hpp"

#include <utility>

namespace trainstone {

namespace {

/// The place of the next instruction that reduces a bucket, from `from` on, if nothing but other reductions comes
/// before it; else the size of the list.
std::size_t next_reduction(std::span<Instruction const> list, std::size_t from) {
  for (std::size_t i = from; i < list.size(); ++i) {
    Act const act = list[i].act == Act::wait ? list[i].started : list[i].act;
    if (list[i].act == Act::reduce) return i;
    if (act != Act::reduce && act != Act::reduce_sums && act != Act::accumulate) break;
  }
  return list.size();
}

} // namespace

/// \param[in] first_micro_batch  is added to the numbers of all micro-batches
void Trainer::play(std::vector<Segment> const& segments, GlobalBatch const& global, Index first_micro_batch) {
  BetweenLaunches::Scoped const driven = m_engine.drive_between_launches();
  for (Segment const& segment : segments)
    for (Index time = first_micro_batch; time < first_micro_batch + segment.times; ++time) {
      std::span<Instruction const> left = segment.instructions;
      while (!left.empty()) {
        Instruction const instruction = later(left.front(), time);
        left = left.subspan(1);
        if (instruction.act == Act::backward)
          left = left.subspan(backward(instruction, left, time));
        else
          play(instruction, global);
      }
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
  case Act::agree: return agree(global);
  case Act::norm: m_norm = m_engine.gradient_norm(); return;
  case Act::update: return m_engine.update(m_config->optimizer, m_update_numbers);
  case Act::wait: return wait(instruction);
  default: return m_engine.execute(instruction);
  }
}

void Trainer::forward(Instruction const& instruction, GlobalBatch const& global) {
  Unit const unit = m_units[static_cast<std::size_t>(instruction.subject)];
  m_model.forward(m_exec, unit, m_loaded[static_cast<std::size_t>(instruction.micro_batch)],
                  m_engine.parameters(group_read_by(unit), instruction.slot));
  inject_fault(unit, global.step);
}

void Trainer::loss(Instruction const& instruction, GlobalBatch const& global) {
  m_model.loss(m_exec, m_loaded[static_cast<std::size_t>(instruction.micro_batch)], global.mode);
  if (global.first_positions > 0) keep_first_positions(global, instruction.micro_batch);
  sum(m_exec, m_model.losses(), Vector<double>(m_loss_sums.data() + instruction.micro_batch, 1));
}

/// Starts the reductions that stand behind it as soon as the gradients that they take are there.
/// \param[in] later_by  is added to the numbers of their micro-batches    \return how many instructions it has played
std::size_t Trainer::backward(Instruction const& instruction, std::span<Instruction const> behind, Index later_by) {
  Unit const unit = m_units[static_cast<std::size_t>(instruction.subject)];
  Index const group = group_read_by(unit);
  std::size_t played = 0;
  GradientTarget target = m_engine.gradient_target(group, instruction.micro_batch);
  if (m_plan->parallel.overlap)
    target.completed = [&](Index begin) {
      std::size_t next = next_reduction(behind, played);
      for (; next < behind.size() && m_engine.lies_behind(behind[next].subject, group, begin);
           next = next_reduction(behind, played))
        while (played <= next) m_engine.execute(later(behind[played++], later_by));
    };
  bool const reads = unit.kind != UnitKind::embed;
  ConstStoredVector const parameters =
      reads ? m_engine.parameters(group, instruction.slot) : m_engine.parameters(group, 0).part(0, 0);
  m_model.backward(m_exec, unit, m_loaded[static_cast<std::size_t>(instruction.micro_batch)], parameters, target);
  if (!reads && instruction.micro_batch + 1 == m_plan->accumulation) m_backward_ends = true;
  return played;
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
  std::vector<Segment> units = m_program.evaluation;
  for (Segment& segment : units)
    std::erase_if(segment.instructions,
                  [](Instruction const& one) { return one.act == Act::load || one.act == Act::loss; });
  constexpr std::int64_t no_step = 0;
  play(units, {&m_batches.training, batch, LossMode::evaluation, no_step});
  return m_loaded.front();
}

} // namespace trainstone
