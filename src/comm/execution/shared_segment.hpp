#pragma once

// Memory for kernels that all ranks of a node see. Owns a part per rank, and the flags by which ranks wait for each
// other. The flags lie in one POSIX shared-memory segment per node group. On hosts the parts lie beside them. On
// devices a part is device memory, and each neighbour has it mapped. Promises: nothing with a name is left in the
// system, even after a kill (but see Sharing::named of node_memory.hpp). Not MPI windows: MPICH's ch4:ucx builds have
// none (upstream issues 7705, 7814), and there MPI_COMM_TYPE_SHARED gives groups of one; the node group is the
// communicator's own (host name and boot id, or emulated).

#include "comm/execution/communicator.hpp"
#include "comm/schedule/schedule.hpp"
#include "core/memory.hpp"
#include "core/views.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace trainstone {

class SharedSegment {
public:
  /// Collective over the communicator. `bytes` of this rank's part may differ between ranks, and be 0; the part is 0,
  /// and its pages are touched first by this rank. It is entered in the ledger, its overhead among the buffers.
  /// \throws Error on all ranks of the node if the system refuses
  SharedSegment(Communicator const& communicator, MemoryLedger& ledger, MemoryCategory category,
                std::string const& label, std::uint64_t bytes);
  SharedSegment(SharedSegment&&) noexcept;
  SharedSegment& operator=(SharedSegment&&) = delete;
  /// Kernels that use the parts must have ended. Waits for nobody: device memory that neighbours still have mapped goes
  /// when a later segment begins or ends, or by free_what_all_left().
  ~SharedSegment();
  /// Frees this process's device memory of segments that have ended on all ranks of their nodes. Waits for nobody.
  static void free_what_all_left();

  /// This rank's part; aligned to a page, on devices to 256 bytes.
  Vector<std::byte> bytes() const;
  /// The ranks of this node in the communicator, ascending.
  std::vector<Rank> const& neighbours() const;
  /// Where the part of a neighbour (by its place in neighbours()) begins here, and its length.
  std::byte* part(std::size_t neighbour) const;
  std::uint64_t part_bytes(std::size_t neighbour) const;
  /// Whether [first, first + bytes) lies in this rank's part.
  bool contains(std::byte const* first, std::uint64_t bytes) const;

  // --- waiting for neighbours. A sequence of barriers belongs to a ticket; tickets are drawn in the same order on all
  // ranks of the node; up to `open_tickets` of them may be in use at once.
  static constexpr std::uint64_t open_tickets = 64;
  /// \throws Error if this rank has not closed the ticket drawn so many times ago, or after give_up()
  std::uint64_t next_ticket();
  /// Whether the neighbours have closed it, too; before, nothing of the new ticket may be used. Does not wait.
  bool is_free(std::uint64_t ticket);
  /// After an error: tickets stay open on some ranks, and no more are drawn.
  void give_up() noexcept;
  /// This rank no longer reads memory that belongs to the ticket.
  void close_ticket(std::uint64_t ticket);
  /// Tells the neighbours that this rank has come to barrier `step` (0, 1, ...) of a ticket, and where its buffers
  /// begin in its part (offsets in bytes; the first barrier's are kept). All that it wrote before is visible to who
  /// sees it there.
  void arrive(std::uint64_t ticket, std::uint64_t step, std::uint64_t data_offset, std::uint64_t scratch_offset);
  /// Whether all neighbours have come to that barrier. Does not wait.
  bool all_arrived(std::uint64_t ticket, std::uint64_t step) const;
  /// What a neighbour told when it arrived; valid between all_arrived() of the ticket's first and last barrier.
  std::uint64_t data_offset(std::uint64_t ticket, std::size_t neighbour) const;
  std::uint64_t scratch_offset(std::uint64_t ticket, std::size_t neighbour) const;

  /// Mailbox of a neighbour for a ticket: mailbox_bytes that it alone writes, and that stay until all have closed the
  /// ticket. Memory for kernels: on hosts beside the flags, on devices beside the parts.
  static constexpr std::uint64_t mailbox_bytes = mailbox_elements * sizeof(std::int64_t);
  std::byte* mailbox(std::uint64_t ticket, std::size_t neighbour) const;
  /// This rank's place in neighbours().
  std::size_t me() const;

private:
  struct State;
  static std::vector<std::unique_ptr<State>>& left_states();

  std::unique_ptr<State> m_state;
};

/// Call this after each check that has found no change by another process. It first spins, then gives the core away,
/// which lets more ranks than cores make progress. Use one object per wait.
class Patience {
public:
  void look_again();

private:
  int m_looks = 0;
};

} // namespace trainstone
