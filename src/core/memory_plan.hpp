#pragma once

// Memory as plans know it. Owns the categories, bytes per category, what a tensor occupies in an arena, and the list of
// tensors that an arena will be cut by. Promises: an Arena (core/memory.hpp) cuts by the same rule, so that a plan
// predicts its size exactly. Plain values without Kokkos, so that plans are read cheaply. Allocates and counts nothing.

#include "core/index.hpp"
#include "core/storage.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trainstone {

enum class MemoryCategory { parameters, gradients, optimizer, activations, buffers, data };

inline constexpr std::array<MemoryCategory, 6> memory_categories{
    MemoryCategory::parameters,  MemoryCategory::gradients, MemoryCategory::optimizer,
    MemoryCategory::activations, MemoryCategory::buffers,   MemoryCategory::data};

std::string_view to_string(MemoryCategory category);

/// Bytes per category: what a plan predicts and what the ledger counted; the two are compared with ==.
class CategoryBytes {
public:
  std::uint64_t& operator[](MemoryCategory category) { return m_bytes[static_cast<std::size_t>(category)]; }
  std::uint64_t operator[](MemoryCategory category) const { return m_bytes[static_cast<std::size_t>(category)]; }
  std::uint64_t total() const;
  bool operator==(CategoryBytes const&) const = default;

private:
  std::array<std::uint64_t, memory_categories.size()> m_bytes{};
};

/// In bytes: allocations begin at multiples of it, and so do the tensors of an arena.
inline constexpr std::uint64_t memory_alignment = 64;

/// What `bytes` bytes occupy in an arena: plans add these up.
constexpr std::uint64_t memory_footprint(std::uint64_t bytes) {
  return (bytes + memory_alignment - 1) / memory_alignment * memory_alignment;
}

/// One tensor of a plan that an arena will be cut by.
struct PlannedTensor {
  std::string name;
  std::uint64_t bytes; ///< as the arena rounds them up
};

template <class T>
PlannedTensor planned(std::string const& name, Index count) {
  return {name, memory_footprint(static_cast<std::uint64_t>(count) * sizeof(T))};
}
/// Of elements whose type is known at run time.
inline PlannedTensor planned(Storage storage, std::string const& name, Index count) {
  return {name, memory_footprint(static_cast<std::uint64_t>(count) * bytes_per_value(storage))};
}

std::uint64_t total_bytes(std::vector<PlannedTensor> const& plan);

} // namespace trainstone
