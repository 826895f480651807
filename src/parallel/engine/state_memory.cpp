#include "parallel/engine/state_memory.hpp"

namespace trainstone {

void set_to_zero(ExecutionSpace const& exec, StoredVector vector) {
  // of all storage types 0 is as many bytes of 0
  std::span<std::byte> const bytes = bytes_of(vector);
  Kokkos::deep_copy(exec, Vector<unsigned char>(reinterpret_cast<unsigned char*>(bytes.data()), bytes.size()), 0);
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
