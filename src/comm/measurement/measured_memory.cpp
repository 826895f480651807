#include "comm/measurement/measured_memory.hpp"

#include <algorithm>

namespace trainstone {

void MeasuredBytes::include(MeasuredBytes const& other) {
  data = std::max(data, other.data);
  scratch = std::max(scratch, other.scratch);
  staging = std::max(staging, other.staging);
}

MeasuredMemory::MeasuredMemory(ExecutionSpace const& exec, Communicator const& communicator, MemoryLedger& ledger,
                               std::string const& label, MeasuredBytes const& bytes, bool shared) {
  std::uint64_t const data = memory_footprint(bytes.data), scratch = memory_footprint(bytes.scratch);
  if (shared) {
    m_segment.emplace(communicator, ledger, MemoryCategory::buffers, label, data + scratch);
    m_buffers.segment = &*m_segment;
  } else {
    m_own = Allocation(ledger, MemoryCategory::buffers, label, data + scratch);
  }
  std::byte* const first = this->bytes().data();
  m_buffers.data = Vector<std::byte>(first, data);
  m_buffers.scratch = Vector<std::byte>(first + data, scratch);
  Kokkos::deep_copy(exec, this->bytes(), std::byte{});
  if (bytes.staging > 0) {
    m_pinned = PinnedMemory(ledger, label + " staging", memory_footprint(bytes.staging));
    m_buffers.staging = m_pinned.take(bytes.staging);
  }
  exec.fence("trainstone::comm::measured_memory: neighbours and MPI may touch it");
}

Vector<std::byte> MeasuredMemory::bytes() const { return m_segment ? m_segment->bytes() : m_own.bytes(); }

} // namespace trainstone
