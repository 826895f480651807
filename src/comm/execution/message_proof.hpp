#pragma once

// Messages that prove that a library takes the kernels' memory. Every rank sends to the next rank, in every layout that
// training uses, by persistent requests. Owns the messages and the check of every element. Pure MPI: none of the
// executor's code takes part.

#include "comm/execution/communicator.hpp"
#include "comm/schedule/partition.hpp"
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
  /// Like a bucket of gradients: three pieces of unequal lengths, with gaps, and the first piece last in memory.
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

/// Writes message number `turn` of rank `rank`. No other rank or turn has the same element in the same place. Gaps get
/// other values.
void write_proof(ExecutionSpace const& exec, ProofEnd const& end, Rank rank, int turn);
/// Number of elements that differ from write_proof(exec, end, rank, turn), plus places in gaps that differ from
/// write_proof(exec, end, own, turn). Waits.
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

/// Number of elements that arrive wrong on this rank. Every rank sends messages of the given number of elements to the
/// next rank, in two turns and in all layouts at both ends. Collective.
Index wrong_elements(Communicator const& communicator, ExecutionSpace const& exec, Index elements);

} // namespace trainstone::Impl
