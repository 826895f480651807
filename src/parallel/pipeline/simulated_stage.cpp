#include "parallel/pipeline/simulated_stage.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace trainstone::Impl {

namespace {

template <class... Values>
void require(bool condition, PipelineDefect defect, fmt::format_string<Values...> text, Values&&... values) {
  if (!condition) throw FoundPipelineDefect{defect, fmt::format(text, std::forward<Values>(values)...)};
}

} // namespace

SimulatedStage::SimulatedStage(PipelineProgram const& program, Index stage)
    : m_program(program), m_stage(stage), m_splits(program.splits_backward) {
  StageProgram const& own = program.stages[static_cast<std::size_t>(stage)];
  m_slots.buffers.resize(static_cast<std::size_t>(std::max<Index>(0, own.slots)));
  m_inputs.buffers.resize(static_cast<std::size_t>(std::max<Index>(0, own.inputs)));
  m_gradients.buffers.resize(static_cast<std::size_t>(std::max<Index>(0, own.gradients)));
}

SimulatedStage::Buffer& SimulatedStage::at(Pool& pool, Index number) {
  require(number >= 0 && number < std::ssize(pool.buffers), PipelineDefect::malformed,
          "there is no {} {}, the program has {}", pool.name, number, pool.buffers.size());
  return pool.buffers[static_cast<std::size_t>(number)];
}

void SimulatedStage::take(Pool& pool, Index number, Use use, Work const& work) {
  Buffer& buffer = at(pool, number);
  require(buffer.use == Use::free, PipelineDefect::written_while_used,
          "{} {} is still used by micro-batch {}, chunk {}", pool.name, number, buffer.work.first, buffer.work.second);
  buffer = {use, work};
  pool.peak = std::max(pool.peak, ++pool.used);
}

void SimulatedStage::release(Pool& pool, Index number) {
  at(pool, number) = {};
  --pool.used;
}

void SimulatedStage::require_has(Pool& pool, Index number, Use use, Work const& work) {
  Buffer const& buffer = at(pool, number);
  require(buffer.use != Use::free, PipelineDefect::not_there, "{} {} has nothing", pool.name, number);
  require(buffer.work == work, PipelineDefect::wrong_buffer, "{} {} has micro-batch {}, chunk {}", pool.name, number,
          buffer.work.first, buffer.work.second);
  require(buffer.use != Use::sending || use == Use::sending, PipelineDefect::written_while_used,
          "nothing has waited for the send from {} {}", pool.name, number);
  require(buffer.use == use, PipelineDefect::not_there, "what {} {} should have is not there yet", pool.name, number);
}

SimulatedStage::Pool& SimulatedStage::pool_of(StageInstruction const& one, bool received, Index& number) {
  if (one.kind == MessageKind::gradient) {
    number = one.gradient;
    return m_gradients;
  }
  number = received ? one.input : one.slot;
  return received ? m_inputs : m_slots;
}

SimulatedStage::Done SimulatedStage::done(Work const& work) const {
  auto const found = m_done.find(work);
  return found == m_done.end() ? Done::nothing : found->second;
}

void SimulatedStage::require_well_formed(StageInstruction const& one) const {
  PipelineShape const& shape = m_program.shape;
  require(one.micro_batch >= 0 && one.micro_batch < shape.micro_batches && one.chunk >= 0 && one.chunk < shape.chunks,
          PipelineDefect::malformed, "there is no micro-batch {}, chunk {}", one.micro_batch, one.chunk);
  bool const receiving = one.act == StageAct::receive || one.act == StageAct::wait_receive;
  if (!computes(one.act))
    require(receiving ? receives(shape, one.kind, m_stage, one.chunk) : sends(shape, one.kind, m_stage, one.chunk),
            PipelineDefect::malformed, "the chunk has no such message");
}

void SimulatedStage::receive(StageInstruction const& one) {
  require(m_received.emplace(std::pair(one.kind, work_of(one)), false).second, PipelineDefect::doubled,
          "is received twice");
  Index number = 0;
  Pool& pool = pool_of(one, true, number);
  take(pool, number, Use::receiving, work_of(one));
}

void SimulatedStage::require_receiving(StageInstruction const& one) const {
  auto const found = m_received.find({one.kind, work_of(one)});
  require(found != m_received.end() && !found->second, PipelineDefect::not_started, "no receive has been posted");
}

void SimulatedStage::wait_receive(StageInstruction const& one) {
  Index number = 0;
  Pool& pool = pool_of(one, true, number);
  require_has(pool, number, Use::receiving, work_of(one));
  at(pool, number).use = Use::arrived;
  m_received[{one.kind, work_of(one)}] = true;
}

void SimulatedStage::send(StageInstruction const& one) {
  Work const work = work_of(one);
  require(!m_sent.contains({one.kind, work}), PipelineDefect::doubled, "is sent twice");
  Done const needed = one.kind == MessageKind::activation ? Done::forward : Done::backward;
  require(done(work) >= needed, PipelineDefect::not_there, "what is sent has not been computed");
  Index number = 0;
  Pool& pool = pool_of(one, false, number);
  require_has(pool, number, Use::made, work);
  at(pool, number).use = Use::sending;
  m_sent[{one.kind, work}] = false;
}

void SimulatedStage::require_sending(StageInstruction const& one) const {
  auto const found = m_sent.find({one.kind, work_of(one)});
  require(found != m_sent.end() && !found->second, PipelineDefect::not_started, "no send has been started");
}

void SimulatedStage::wait_send(StageInstruction const& one) {
  Index number = 0;
  Pool& pool = pool_of(one, false, number);
  require_has(pool, number, Use::sending, work_of(one));
  m_sent[{one.kind, work_of(one)}] = true;
  if (one.kind == MessageKind::gradient || m_program.forward_only)
    release(pool, number);
  else
    at(pool, number).use = Use::made;
}

bool SimulatedStage::receives_input(StageInstruction const& one) const {
  return receives(m_program.shape, MessageKind::activation, m_stage, one.chunk);
}

/// A chunk that receives nothing has no input buffer.
void SimulatedStage::require_input(StageInstruction const& one) {
  if (receives_input(one)) return require_has(m_inputs, one.input, Use::arrived, work_of(one));
  require(one.input == StageInstruction::none, PipelineDefect::malformed, "the chunk has no input, not {}", one.input);
}

void SimulatedStage::forward(StageInstruction const& one) {
  Work const work = work_of(one);
  PipelineShape const& shape = m_program.shape;
  require(done(work) == Done::nothing, PipelineDefect::doubled, "is computed twice");
  bool const follows_here = shape.stages == 1 && one.chunk > 0;
  require(!follows_here || done({one.micro_batch, one.chunk - 1}) != Done::nothing, PipelineDefect::not_there,
          "the chunk before it has not been computed");
  require_input(one);
  take(m_slots, one.slot, Use::made, work);
  m_done[work] = Done::forward;
  if (m_program.forward_only) {
    if (receives_input(one)) release(m_inputs, one.input);
    if (!sends(shape, MessageKind::activation, m_stage, one.chunk)) release(m_slots, one.slot);
  } else if (shape.is_last(m_stage, one.chunk)) {
    take(m_gradients, one.gradient, Use::arrived, work);
  }
}

void SimulatedStage::backward(StageInstruction const& one) {
  Work const work = work_of(one);
  PipelineShape const& shape = m_program.shape;
  require(done(work) != Done::nothing, PipelineDefect::not_there, "its forward has not been computed");
  require(done(work) == Done::forward, PipelineDefect::doubled, "is computed twice");
  require_has(m_slots, one.slot, Use::made, work);
  require_input(one);
  require_has(m_gradients, one.gradient, Use::arrived, work);
  m_done[work] = Done::backward;
  if (!m_splits) complete(work);
  if (!m_splits) release_chunk(one);
  if (sends(shape, MessageKind::gradient, m_stage, one.chunk))
    at(m_gradients, one.gradient).use = Use::made;
  else if (shape.is_first(m_stage, one.chunk))
    release(m_gradients, one.gradient);
  else
    at(m_gradients, one.gradient).work = {one.micro_batch, one.chunk - 1};
}

void SimulatedStage::weights(StageInstruction const& one) {
  Work const work = work_of(one);
  require(done(work) >= Done::backward, PipelineDefect::not_there, "its backward has not been computed");
  require(done(work) == Done::backward, PipelineDefect::doubled, "is computed twice");
  require_has(m_slots, one.slot, Use::made, work);
  require_input(one);
  m_done[work] = Done::weights;
  complete(work);
  release_chunk(one);
}

void SimulatedStage::release_chunk(StageInstruction const& one) {
  release(m_slots, one.slot);
  if (receives_input(one)) release(m_inputs, one.input);
}

/// The gradients of a chunk's parameters have this micro-batch now.
void SimulatedStage::complete(Work const& work) {
  std::vector<Index>& order = m_completed[work.second];
  order.push_back(work.first);
  if (order.size() < 3) return;
  bool const ascends = order[0] < order[1];
  Index const before = order[order.size() - 2];
  require(ascends == (before < work.first), PipelineDefect::mixed_order,
          "gradients of chunk {} are complete for micro-batches {}, {}, ..., {}, {}", work.second, order[0], order[1],
          before, work.first);
}

void SimulatedStage::require_done_all() const {
  Done const last = m_program.forward_only ? Done::forward : m_splits ? Done::weights : Done::backward;
  for (Index chunk = 0; chunk < m_program.shape.chunks; ++chunk)
    for (Index j = 0; j < m_program.shape.micro_batches; ++j)
      require(done({j, chunk}) == last, PipelineDefect::missing, "ends without {} of micro-batch {}, chunk {}",
              done({j, chunk}) == Done::nothing   ? "forward"
              : done({j, chunk}) == Done::forward ? "backward"
                                                  : "weights",
              j, chunk);
}

void SimulatedStage::require_complete() const {
  require_done_all();
  for (auto const* const messages : {&m_received, &m_sent})
    for (auto const& [message, waited] : *messages)
      require(waited, PipelineDefect::never_waited, "nothing waits for the {} of {} {}, chunk {}",
              messages == &m_sent ? "send" : "receive", to_string(message.first), message.second.first,
              message.second.second);
  for (Index chunk = 0; chunk < m_program.shape.chunks; ++chunk)
    for (Index j = 0; j < m_program.shape.micro_batches; ++j)
      for (MessageKind const kind : {MessageKind::activation, MessageKind::gradient})
        require(!sends(m_program.shape, kind, m_stage, chunk) ||
                    (m_program.forward_only && kind == MessageKind::gradient) || m_sent.contains({kind, {j, chunk}}),
                PipelineDefect::missing, "ends without a send of {} {}, chunk {}", to_string(kind), j, chunk);
  for (Pool const* const pool : {&m_slots, &m_inputs, &m_gradients})
    require(pool->peak == std::ssize(pool->buffers), PipelineDefect::wrong_count, "has {} {}s and uses {}",
            pool->buffers.size(), pool->name, pool->peak);
}

} // namespace trainstone::Impl
