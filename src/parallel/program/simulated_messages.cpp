// The messages of a simulated rank: the stage of a pipeline before it or behind it has what it sends, and a buffer is
// left alone until the message has ended. Part of simulated_rank.hpp.

#include "parallel/program/simulated_rank.hpp"

#include <fmt/format.h>

namespace trainstone::Impl {

void SimulatedRank::begin_message(Instruction const& instruction) {
  if (message_kind(instruction) == MessageKind::activation)
    begin_activation(instruction);
  else
    begin_gradient(instruction);
}

void SimulatedRank::begin_activation(Instruction const& instruction) {
  auto const [slot, input, gradient] = instruction.buffers;
  if (instruction.act == Act::send) {
    require_there(instruction, m_activations.missing_for_send(instruction));
    require_unsent(instruction);
    m_sent_slots[index(slot)] = true;
    return;
  }
  if (m_input_coming[index(input)])
    fail(StepDefect::written_while_used, instruction, fmt::format("input {} is being received", input));
  m_input_coming[index(input)] = true;
  m_activations.drop_input(instruction);
}

void SimulatedRank::begin_gradient(Instruction const& instruction) {
  StreamGradient& stream = m_streams[index(instruction.buffers.gradient)];
  if (stream.in_message) fail(StepDefect::written_while_used, instruction, "another message uses the gradient buffer");
  if (instruction.act == Act::receive) {
    if (stream.part != Instruction::none || stream.chunk != Instruction::none)
      fail(StepDefect::written_while_used, instruction,
           fmt::format("the gradient buffer has a gradient of micro-batch {}", stream.micro_batch));
    stream = {.in_message = true};
    return;
  }
  if (stream.chunk != instruction.piece || stream.micro_batch != instruction.micro_batch)
    fail(StepDefect::undefined_read, instruction, "the gradient of the chunk's input is not there");
  stream.in_message = true;
}

void SimulatedRank::end_message(Instruction const& instruction) {
  bool const receives = instruction.started == Act::receive;
  auto const [slot, input, gradient] = instruction.buffers;
  if (message_kind(instruction) == MessageKind::gradient) {
    StreamGradient& stream = m_streams[index(gradient)];
    stream = {};
    if (!receives) return;
    stream.micro_batch = instruction.micro_batch;
    stream.part = m_plan->parts.chunk_parts(instruction.piece).end - 1;
  } else if (receives) {
    m_input_coming[index(input)] = false;
    m_activations.receive(instruction);
  } else {
    m_sent_slots[index(slot)] = false;
  }
}

} // namespace trainstone::Impl
