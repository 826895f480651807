#pragma once

// Large pages: memory in pages of 2 MiB instead of 4 KiB. A processor keeps the addresses of a few thousand pages, so
// a training state of hundreds of MiB in small pages costs walks through tables. Large pages are asked for only, so a
// system that gives none changes speed and nothing else.

#include <cstddef>
#include <cstdint>

namespace trainstone {

/// Bytes of a large page, and the alignment that it needs.
inline constexpr std::uint64_t large_page_bytes = std::uint64_t{2} << 20;

/// The next multiple of a unit.
constexpr std::uint64_t round_up(std::uint64_t bytes, std::uint64_t unit) { return (bytes + unit - 1) / unit * unit; }

/// Asks for large pages where they fit entirely into a range of this process' own memory. Before the range is touched:
/// pages that are there already stay small.
void ask_for_large_pages(std::byte* begin, std::uint64_t bytes);

/// Makes large pages of a range of shared memory. Works although the system's setting for shared memory is mostly
/// "never". Needs Linux 6.1 and memory that is free in large pieces: pages that cannot be made stay small.
/// \param[in] begin  aligned to a large page, in memory and in the file
/// \param[in] bytes  whole large pages, of each of which one small page is there
void make_large_pages(std::byte* begin, std::uint64_t bytes);

/// Bytes of this process that are in large pages now, of its own memory and of shared memory; 0 if the system does not
/// tell. Source: Linux kernel documentation, "The /proc Filesystem".
std::uint64_t bytes_in_large_pages();

} // namespace trainstone
