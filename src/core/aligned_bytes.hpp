#pragma once

// Memory that files can be read into and written from past the system's cache.

#include "core/residence.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace trainstone {

/// What is left of the memory from its first multiple of file_alignment on: at most that less one byte is left out.
inline std::span<std::byte> from_file_alignment(std::span<std::byte> memory) {
  std::uint64_t const beyond = reinterpret_cast<std::uintptr_t>(memory.data()) % file_alignment;
  return memory.subspan((file_alignment - beyond) % file_alignment);
}

} // namespace trainstone
