#pragma once

// What ranks of a tensor group bring together around the pieces of an instruction. Owns the lists, each of which is
// made once.

#include "model/part_lists.hpp"
#include "parallel/program/instruction.hpp"

#include <map>
#include <tuple>
#include <vector>

namespace trainstone {

/// The chunks of rows of an exchange whose part a piece leaves: its own, if it is of one, else all.
inline Range started_chunks(SliceExchange exchange, PieceExchanges const& piece, GptOptions const& options) {
  Index const chunks = chunks_of(exchange, options), own = piece.row_chunk.value_or(0);
  return piece.row_chunk && chunks > 1 ? Range{own, own + 1} : Range{0, chunks};
}

class ExchangeTable {
public:
  /// \param[in] parts  outlive the object
  explicit ExchangeTable(PartTable const& parts) : m_parts(&parts) {}

  /// By piece of the pass of an instruction that computes. Valid as long as the object.
  std::vector<PieceExchanges> const& of(Instruction const& instruction) {
    Pass const pass = pass_of(instruction.act);
    Part const part = part_of(instruction, *m_parts);
    Recompute const how = m_parts->recompute(part);
    auto const [found, is_new] = m_known.try_emplace({pass, part.kind, how});
    if (is_new) found->second = piece_exchanges(pass, part.kind, m_parts->options(), how);
    return found->second;
  }

private:
  PartTable const* m_parts;
  std::map<std::tuple<Pass, PartKind, Recompute>, std::vector<PieceExchanges>> m_known;
};

} // namespace trainstone
