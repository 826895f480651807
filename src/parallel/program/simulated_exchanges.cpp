// What a rank of the simulator computes piece by piece, and what the ranks of its tensor group bring together between
// the pieces.

#include "parallel/program/simulated_rank.hpp"

#include <fmt/format.h>

namespace trainstone::Impl {

void SimulatedRank::require_no_open_pass(Instruction const& instruction) const {
  if (m_open)
    fail(StepDefect::undefined_read, instruction,
         fmt::format("piece {} of \"{}\" comes next", m_open->next, to_string(m_open->of, *m_plan)));
}

/// Before the memory and the parameters that they read are looked at.
void SimulatedRank::run_pieces(Instruction const& instruction) {
  PartTable const& parts = m_plan->parts;
  Range const run = pieces_run(instruction, parts);
  bool const continues = m_open && m_open->of.act == instruction.act && m_open->of.subject == instruction.subject &&
                         m_open->of.micro_batch == instruction.micro_batch && m_open->next == run.begin;
  if (!continues) require_no_open_pass(instruction);
  bool const is_once = instruction.act == Act::forward || instruction.act == Act::recompute; // others count themselves
  if (is_once && !continues && run.begin != 0) fail(StepDefect::undefined_read, instruction, "piece 0 comes first");
  m_open.reset();
  if (is_once && !ends_pass(instruction, parts)) m_open = {instruction, run.end};
  if (!m_layout->mesh.shares_layers()) return;
  std::vector<PieceExchanges> const& all = m_exchange_table.of(instruction);
  for (Index piece = run.begin; piece < run.end; ++piece) {
    PieceExchanges const& around = all[index(piece)];
    for (SliceExchange const exchange : around.needs)
      for (Index number = 0; number < chunks_of(exchange, parts.options()); ++number)
        use_exchanged(instruction, exchange, number);
    for (SliceExchange const exchange : around.starts) {
      Range const chunks = started_chunks(exchange, around, parts.options());
      for (Index number = chunks.begin; number < chunks.end; ++number)
        leave_for_exchange(instruction, exchange, number);
    }
  }
}

void SimulatedRank::use_exchanged(Instruction const& instruction, SliceExchange exchange, Index number) {
  Exchanged& exchanged = m_exchanged[{exchange, number}];
  if (exchanged.state != Exchanged::State::whole || !exchanged.is_of(instruction))
    fail(StepDefect::undefined_read, instruction,
         fmt::format("the {} over all tensor ranks is not there", to_string(exchange)));
  exchanged = {};
}

void SimulatedRank::leave_for_exchange(Instruction const& instruction, SliceExchange exchange, Index number) {
  Exchanged& exchanged = m_exchanged[{exchange, number}];
  if (exchanged.state != Exchanged::State::nothing)
    fail(StepDefect::written_while_used, instruction,
         fmt::format("the {} of \"{}\" is still needed", to_string(exchange), to_string(exchanged.by, *m_plan)));
  exchanged = {Exchanged::State::own, instruction};
}

void SimulatedRank::begin_exchange(Instruction const& instruction) {
  Exchanged& exchanged = m_exchanged[{exchange_of(instruction), number_of_chunk(instruction)}];
  if (exchanged.state != Exchanged::State::own || exchanged.by.micro_batch != instruction.micro_batch)
    fail(exchanged.state == Exchanged::State::nothing ? StepDefect::undefined_read : StepDefect::doubled_contribution,
         instruction, "this rank's part of it is not there");
  exchanged.state = Exchanged::State::under_way;
}

void SimulatedRank::end_exchange(Instruction const& instruction) {
  m_exchanged[{exchange_of(instruction), number_of_chunk(instruction)}].state = Exchanged::State::whole;
}

} // namespace trainstone::Impl
