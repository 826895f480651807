#include "parallel/state_memory.hpp"

namespace trainstone {

StateMemory::StateMemory(ExecutionSpace const& exec, Communicator const* sharers, MemoryLedger& ledger,
                         MemoryCategory category, std::string const& label, Index elements) {
  std::uint64_t const bytes = Arena::footprint(static_cast<std::uint64_t>(elements) * sizeof(float));
  if (sharers) {
    m_segment.emplace(*sharers, ledger, category, label, bytes);
  } else {
    m_memory = Allocation(ledger, category, label, bytes);
  }
  Arena arena(m_segment ? m_segment->bytes() : m_memory.bytes());
  m_vector = arena.vector<float>(label, elements);
  Kokkos::deep_copy(exec, m_vector, 0.0f);
}

} // namespace trainstone
