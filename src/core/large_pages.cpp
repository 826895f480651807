#include "core/large_pages.hpp"

#include <sys/mman.h>

#include <fstream>
#include <limits>
#include <string>

namespace trainstone {

void ask_for_large_pages(std::byte* begin, std::uint64_t bytes) {
  auto const address = reinterpret_cast<std::uintptr_t>(begin);
  std::uintptr_t const first = round_up(address, large_page_bytes),
                       last = (address + bytes) / large_page_bytes * large_page_bytes;
  if (first >= last) return;
  // An error says that the system has none. Small pages do as well.
  static_cast<void>(madvise(begin + (first - address), last - first, MADV_HUGEPAGE));
}

void make_large_pages(std::byte* begin, std::uint64_t bytes) {
#ifdef MADV_COLLAPSE
  constexpr int collapse = MADV_COLLAPSE;
#else
  constexpr int collapse = 25; // headers older than the kernel
#endif
  static_cast<void>(madvise(begin, bytes, collapse));
}

std::uint64_t bytes_in_large_pages() {
  std::ifstream maps("/proc/self/smaps_rollup");                  // lines such as "AnonHugePages:    2048 kB"
  maps.ignore(std::numeric_limits<std::streamsize>::max(), '\n'); // the range of addresses
  std::uint64_t bytes = 0, kibibytes = 0;
  for (std::string name, unit; maps >> name >> kibibytes >> unit;)
    if (name == "AnonHugePages:" || name == "ShmemPmdMapped:") bytes += 1024 * kibibytes;
  return bytes;
}

} // namespace trainstone
