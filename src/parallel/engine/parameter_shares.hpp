#pragma once

// The parameters that this rank keeps: all of them, or its shares. Owns them, wherever the plan says that they lie, and
// the places to which gathers fetch shares from a file. Promises: it allocates, reads and writes exactly what the plan
// says. Does not know when shares are needed: the step program does.

#include "comm/execution/buffers.hpp"
#include "core/file_queue.hpp"
#include "parallel/engine/state_memory.hpp"
#include "parallel/plan/offload_plan.hpp"

#include <array>
#include <functional>
#include <optional>
#include <span>
#include <utility>

namespace trainstone {

class ParameterShares {
public:
  /// Zeroed. Collective over `sharers`; null: private. Plan and layout must outlive the object.
  ParameterShares(ExecutionSpace const& exec, Communicator const* sharers, MemoryLedger& ledger,
                  OffloadPlan const& plan, StateLayout const& layout);
  ParameterShares(ParameterShares const&) = delete;
  ParameterShares& operator=(ParameterShares const&) = delete;

  bool in_file() const { return m_file.has_value(); }
  /// Elements [begin, begin + size) of all that this rank keeps. \throws Error if they lie in a file
  StoredVector part(Index begin, Index size) const;
  /// The segment that neighbours see, or null.
  SharedSegment* segment() { return m_memory.segment(); }

  /// Starts to read this rank's shares of a unit from the file into a slot. Calls `meanwhile` again and again while
  /// copies from the slot are under way. Nothing without a file.
  void fetch(Index unit, Index slot, std::function<void()> const& meanwhile);
  /// Until the shares are there. \throws Error if the file cannot be read
  void wait_fetched(Index slot, std::function<void()> const& meanwhile);
  /// The share of a group that a gather copies: of a file, from the slot where its unit is.
  StoredVector taken(Index group);
  /// A gather has enqueued all its copies of a unit's shares.
  void release(Index unit);
  /// While it lives, nothing is counted: no program asks.
  class Uncounted {
  public:
    explicit Uncounted(ParameterShares& shares) : m_counts(shares.m_counts), m_before(std::exchange(m_counts, false)) {}
    Uncounted(Uncounted const&) = delete;
    Uncounted& operator=(Uncounted const&) = delete;
    ~Uncounted() { m_counts = m_before; }

  private:
    bool& m_counts;
    bool m_before;
  };

  /// A part of the share of a group in memory: of a file, in a fetch slot until the next call or fetch. Waits. Not
  /// counted.
  StoredVector share(Index group, Range part);
  StoredVector share(Index group) { return share(group, {0, share_size(group)}); }
  /// The values of the whole share there were changed. Waits.
  void put_back(Index group);

  // Of an update, if there is a file. Memory is used until wait() has returned for the request or a later one.

  FileQueue::Ticket read(Index group, Range range, std::span<std::byte> memory);
  FileQueue::Ticket write(Index group, Range range, std::span<std::byte> memory);
  void wait(FileQueue::Ticket ticket);

  /// Waits for what is on its way. Not counted.
  void finish();

  /// What gathers have moved so far.
  StateMoves const& gathered() const { return m_gathered; }
  /// How long gathers and updates have waited for the file.
  double waited_seconds() const { return m_waited; }
  FileSeconds file_seconds() const { return m_queue ? m_queue->seconds() : FileSeconds(); }
  /// Null: there is none.
  ScratchFile const* file() const { return m_file ? &*m_file : nullptr; }

private:
  struct Slot {
    std::span<std::byte> memory;
    Index unit = -1;
    FileQueue::Ticket ready = 0; ///< when the unit is there
    InstanceEvent copied;        ///< when nothing copies from there
  };

  void allocate_on_host(MemoryLedger& ledger);
  void allocate_file(MemoryLedger& ledger);
  Index share_size(Index group) const { return m_layout->share(group).size(); }
  std::span<std::byte> first_slot(Index elements) const;
  Slot& slot_of(Index unit);

  ExecutionSpace m_exec;
  OffloadPlan const* m_plan;
  StateLayout const* m_layout;
  StateMemory m_memory;           ///< with the kernels
  PinnedMemory m_host, m_fetched; ///< shares on the host; of slots
  StoredVector m_on_host;
  std::array<Slot, fetch_slots> m_slots;
  FileQueue::Ticket m_last = 0;
  StateMoves m_gathered;
  bool m_counts = true;
  double m_waited = 0;
  std::optional<ScratchFile> m_file;
  mutable std::optional<FileQueue> m_queue; ///< ends before what it uses
};

} // namespace trainstone
