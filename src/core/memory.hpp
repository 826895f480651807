#pragma once

// Memory. Owns the ledger (what is allocated now and at most, per category), the only way to allocate (Allocation)
// and the arena that cuts one allocation into tensors. Promises: the ledger counts where memory is allocated, from the
// actual sizes. Does not plan: sizes come from the plans of the layers below, in the words of core/memory_plan.hpp.

#include "core/memory_plan.hpp"
#include "core/views.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace trainstone {

/// Counts allocations per category. Not thread-safe: allocations happen on the host's main thread.
class MemoryLedger {
public:
  void add(MemoryCategory category, std::uint64_t bytes);
  void remove(MemoryCategory category, std::uint64_t bytes);
  CategoryBytes const& current() const { return m_current; }
  CategoryBytes const& high_water() const { return m_high_water; }
  std::uint64_t high_water_total() const { return m_high_water_total; }

private:
  CategoryBytes m_current;
  CategoryBytes m_high_water;
  std::uint64_t m_high_water_total = 0;
};

/// A range of device memory, entered in a ledger for as long as it lives. The ledger must outlive it.
class Allocation {
public:
  Allocation() = default;
  /// Allocates `bytes` uninitialised bytes, aligned to 64; `label` without the prefix, e.g. "parameters".
  Allocation(MemoryLedger& ledger, MemoryCategory category, std::string const& label, std::uint64_t bytes);
  Allocation(Allocation&& other) noexcept { swap(other); }
  Allocation& operator=(Allocation&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Allocation();

  Vector<std::byte> bytes() const { return Vector<std::byte>(m_memory.data(), m_memory.extent(0)); }

private:
  void swap(Allocation& other) noexcept;

  MemoryLedger* m_ledger = nullptr;
  MemoryCategory m_category{};
  Kokkos::View<std::byte*, MemorySpace> m_memory;
};

/// Memory of the host that another object holds, entered in a ledger for as long as this lives. The ledger must outlive
/// it.
class LedgerEntry {
public:
  LedgerEntry() = default;
  LedgerEntry(MemoryLedger& ledger, MemoryCategory category, std::uint64_t bytes);
  LedgerEntry(LedgerEntry&& other) noexcept { swap(other); }
  LedgerEntry& operator=(LedgerEntry&& other) noexcept {
    swap(other);
    return *this;
  }
  ~LedgerEntry();

private:
  void swap(LedgerEntry& other) noexcept;

  MemoryLedger* m_ledger = nullptr;
  MemoryCategory m_category{};
  std::uint64_t m_bytes = 0;
};

/// Cuts caller-provided memory into aligned tensors, in order, each of which takes the memory_footprint of its bytes;
/// never frees. The memory may be an Allocation or a segment that other processes map as well.
class Arena {
public:
  Arena() = default;
  explicit Arena(Vector<std::byte> memory) : m_memory(memory) {}

  /// The next `count` elements, uninitialised. Throws Error when the arena is exhausted.
  template <class T>
  Vector<T> vector(std::string_view label, Index count) {
    auto* const first = reinterpret_cast<T*>(take(label, static_cast<std::uint64_t>(count) * sizeof(T)));
    return Vector<T>(first, static_cast<std::size_t>(count));
  }
  template <class T>
  Matrix<T> matrix(std::string_view label, Index rows, Index columns) {
    return Matrix<T>(vector<T>(label, rows * columns).data(), static_cast<std::size_t>(rows),
                     static_cast<std::size_t>(columns));
  }

  std::uint64_t used() const { return m_used; }
  std::uint64_t capacity() const { return m_memory.extent(0); }

private:
  std::byte* take(std::string_view label, std::uint64_t bytes);

  Vector<std::byte> m_memory;
  std::uint64_t m_used = 0;
};

} // namespace trainstone
