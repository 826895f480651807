#pragma once

// A flat vector of the training state, in memory of its own or in a segment that the ranks of a communicator share on
// their node.

#include "comm/execution/shared_segment.hpp"
#include "core/memory.hpp"
#include "core/stored.hpp"

#include <cstddef>
#include <optional>
#include <span>
#include <string>

namespace trainstone {

/// All elements become 0; enqueued on exec.
void set_to_zero(ExecutionSpace const& exec, StoredVector vector);

/// Elements at the begin of pinned memory, which kernels reach as they reach their own.
StoredVector elements_in(std::span<std::byte> pinned, Storage storage, Index count);

class StateMemory {
public:
  StateMemory() = default;
  /// Zeroed; enqueued on exec. Collective over `sharers`; null: private.
  StateMemory(ExecutionSpace const& exec, Communicator const* sharers, MemoryLedger& ledger, MemoryCategory category,
              std::string const& label, Storage storage, Index elements);

  /// Elements [begin, begin + size).
  StoredVector part(Index begin, Index size) const { return m_vector.part(begin, size); }
  /// All of it, for other types.
  Arena arena() const { return Arena(m_segment ? m_segment->bytes() : m_memory.bytes()); }
  /// The shared segment in which the vector lies, if neighbours see it; else null.
  SharedSegment* segment() { return m_segment ? &*m_segment : nullptr; }

private:
  std::optional<SharedSegment> m_segment;
  Allocation m_memory;
  StoredVector m_vector;
};

} // namespace trainstone
