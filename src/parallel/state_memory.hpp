#pragma once

// A flat vector of the training state, in memory of its own or in a segment that the ranks of a communicator share on
// their node.

#include "comm/execution/shared_segment.hpp"
#include "core/memory.hpp"

#include <optional>
#include <string>

namespace trainstone {

class StateMemory {
public:
  StateMemory() = default;
  /// Zeroed; enqueued on exec. Collective over `sharers`; null: private.
  StateMemory(ExecutionSpace const& exec, Communicator const* sharers, MemoryLedger& ledger, MemoryCategory category,
              std::string const& label, Index elements);

  Vector<float> vector() const { return m_vector; }
  /// Elements [begin, begin + size).
  Vector<float> part(Index begin, Index size) const {
    return Vector<float>(m_vector.data() + begin, static_cast<std::size_t>(size));
  }
  /// Where it lies, if neighbours see it; else null.
  SharedSegment* segment() { return m_segment ? &*m_segment : nullptr; }

private:
  std::optional<SharedSegment> m_segment;
  Allocation m_memory;
  Vector<float> m_vector;
};

} // namespace trainstone
