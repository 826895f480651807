#pragma once

// Messages that prove what a library can be given: from every rank to the next one, of every layout that training's
// messages have, by persistent requests. Owns what is sent, how, and the check of every element. Works on the kernels'
// memory, whatever that is. Pure MPI: none of the executor's code takes part.

#include "comm/communicator.hpp"
#include "comm/partition.hpp"
#include "core/views.hpp"

#include <array>
#include <cstdint>
#include <memory>

namespace trainstone::Impl {

/// Where the elements of a message lie in memory: piece after piece in the message's order. What lies between pieces is
/// not the message's.
class ProofLayout {
public:
  static constexpr int most_pieces = 3;

  /// One after the other.
  static ProofLayout in_one(Index elements);
  /// As a bucket of gradients: in three pieces of unequal lengths, with gaps, and the first one last in memory.
  static ProofLayout in_pieces(Index elements);

  Index extent() const;
  std::array<Range, most_pieces> const& pieces() const { return m_pieces; }

private:
  std::array<Range, most_pieces> m_pieces; ///< in memory; may be empty
};

/// The memory of one end of a message.
struct ProofEnd {
  ProofLayout layout;
  Vector<std::uint32_t> memory; ///< (layout.extent())
};

/// The elements of rank `rank`'s message number `turn`, none of which any other rank or turn has in its place. Gaps are
/// given other values.
void write_proof(ExecutionSpace const& exec, ProofEnd const& end, Rank rank, int turn);
/// How many elements are not as write_proof(exec, end, rank, turn) makes them, and places in gaps not as
/// write_proof(exec, end, own, turn) does. Waits.
Index count_wrong(ExecutionSpace const& exec, ProofEnd const& end, Rank rank, Rank own, int turn);

/// The two requests of a rank, prepared once: sends to the next rank, receives from the one before.
class ProofExchange {
public:
  ProofExchange(Communicator const& communicator, ProofEnd const& sent, ProofEnd const& received);
  ProofExchange(ProofExchange const&) = delete;
  ProofExchange& operator=(ProofExchange const&) = delete;
  ~ProofExchange();
  /// Waits for both. What kernels write to the memory must have ended.
  void run();

private:
  struct State;
  std::unique_ptr<State> m_state;
};

/// How many elements arrive wrong here, of messages of so many from every rank to the next one: of two turns, in all
/// layouts at both ends. Collective.
Index wrong_elements(Communicator const& communicator, ExecutionSpace const& exec, Index elements);

} // namespace trainstone::Impl
