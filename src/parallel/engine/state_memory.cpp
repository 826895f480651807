#include "parallel/engine/state_memory.hpp"

namespace trainstone {

void set_to_zero(ExecutionSpace const& exec, StoredVector vector) {
  // of all storage types 0 is as many bytes of 0
  auto const bytes = static_cast<std::size_t>(vector.size) * bytes_per_value(vector.storage);
  Kokkos::deep_copy(exec, Vector<unsigned char>(static_cast<unsigned char*>(vector.data), bytes), 0);
}

StoredVector elements_in(std::span<std::byte> pinned, Storage storage, Index count) {
  StoredVector vector;
  vector.data = pinned.data();
  vector.size = count;
  vector.storage = storage;
  return vector;
}

StateMemory::StateMemory(ExecutionSpace const& exec, Communicator const* sharers, MemoryLedger& ledger,
                         MemoryCategory category, std::string const& label, Storage storage, Index elements) {
  std::uint64_t const bytes = memory_footprint(static_cast<std::uint64_t>(elements) * bytes_per_value(storage));
  if (sharers) {
    m_segment.emplace(*sharers, ledger, category, label, bytes);
  } else {
    m_memory = Allocation(ledger, category, label, bytes);
  }
  Arena all = arena();
  m_vector = take_vector(all, storage, label, elements);
  set_to_zero(exec, m_vector);
}

} // namespace trainstone
