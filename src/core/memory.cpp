#include "core/memory.hpp"

#include "core/error.hpp"
#include "core/large_pages.hpp"

#include <algorithm>
#include <utility>

namespace trainstone {

void MemoryLedger::add(MemoryCategory category, std::uint64_t bytes) {
  m_current[category] += bytes;
  m_high_water[category] = std::max(m_high_water[category], m_current[category]);
  m_high_water_total = std::max(m_high_water_total, m_current.total());
}

void MemoryLedger::remove(MemoryCategory category, std::uint64_t bytes) {
  TRAINSTONE_REQUIRE(m_current[category] >= bytes, "{} bytes of {} freed, only {} are allocated", bytes,
                     to_string(category), m_current[category]);
  m_current[category] -= bytes;
}

Allocation::Allocation(MemoryLedger& ledger, MemoryCategory category, std::string const& label, std::uint64_t bytes)
    : m_ledger(&ledger),
      m_category(category),
      m_memory(Kokkos::view_alloc("trainstone::" + label, Kokkos::WithoutInitializing), bytes) {
  TRAINSTONE_REQUIRE(reinterpret_cast<std::uintptr_t>(m_memory.data()) % memory_alignment == 0,
                     "allocation {} is not aligned to {} bytes", label, memory_alignment);
  if constexpr (host_reaches_memory) ask_for_large_pages(m_memory.data(), bytes);
  m_ledger->add(category, m_memory.extent(0));
}

Allocation::~Allocation() {
  if (m_ledger) m_ledger->remove(m_category, m_memory.extent(0));
}

void Allocation::swap(Allocation& other) noexcept {
  std::swap(m_ledger, other.m_ledger);
  std::swap(m_category, other.m_category);
  std::swap(m_memory, other.m_memory);
}

LedgerEntry::LedgerEntry(MemoryLedger& ledger, MemoryCategory category, std::uint64_t bytes)
    : m_ledger(&ledger), m_category(category), m_bytes(bytes) {
  m_ledger->add(category, bytes);
}

LedgerEntry::~LedgerEntry() {
  if (m_ledger) m_ledger->remove(m_category, m_bytes);
}

void LedgerEntry::swap(LedgerEntry& other) noexcept {
  std::swap(m_ledger, other.m_ledger);
  std::swap(m_category, other.m_category);
  std::swap(m_bytes, other.m_bytes);
}

std::byte* Arena::take(std::string_view label, std::uint64_t bytes) {
  std::uint64_t const size = memory_footprint(bytes);
  TRAINSTONE_REQUIRE(m_used + size <= capacity(), "arena exhausted: {} asks for {} bytes, {} of {} are used", label,
                     size, m_used, capacity());
  std::byte* const address = m_memory.data() + m_used;
  m_used += size;
  return address;
}

} // namespace trainstone
