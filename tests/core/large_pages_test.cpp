#include "core/large_pages.hpp"

#include <catch2/catch_test_macros.hpp>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

using namespace trainstone;

namespace {

/// Memory of this process that nothing has touched.
class Untouched {
public:
  explicit Untouched(std::uint64_t bytes)
      : m_bytes(bytes), m_mapped(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    REQUIRE(m_mapped != MAP_FAILED);
  }
  Untouched(Untouched const&) = delete;
  Untouched& operator=(Untouched const&) = delete;
  ~Untouched() { munmap(m_mapped, m_bytes); }
  std::byte* begin() const { return static_cast<std::byte*>(m_mapped); }

private:
  std::uint64_t m_bytes;
  void* m_mapped;
};

/// Two large pages' worth of memory that processes could share, aligned to a large page.
class Shared {
public:
  static constexpr std::uint64_t bytes = 2 * large_page_bytes;
  Shared() : m_room(bytes + large_page_bytes), m_file(memfd_create("test", 0)) {
    REQUIRE(ftruncate(m_file, bytes) == 0);
    auto const place = round_up(reinterpret_cast<std::uintptr_t>(m_room.begin()), large_page_bytes);
    m_begin = m_room.begin() + (place - reinterpret_cast<std::uintptr_t>(m_room.begin()));
    REQUIRE(mmap(m_begin, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, m_file, 0) == m_begin);
  }
  Shared(Shared const&) = delete;
  Shared& operator=(Shared const&) = delete;
  ~Shared() { close(m_file); }
  std::byte* begin() const { return m_begin; }
  /// The first small page of each large one.
  void touch() const {
    for (std::uint64_t i = 0; i < bytes; i += large_page_bytes) m_begin[i] = std::byte{7};
  }

private:
  Untouched m_room;
  int m_file;
  std::byte* m_begin = nullptr;
};

/// Whether the system has noted at this address that large pages were asked for: the flag "hg" of its mapping.
bool is_asked_for(std::byte const* address) {
  std::ifstream maps("/proc/self/smaps");
  bool here = false;
  for (std::string line; std::getline(maps, line);) {
    unsigned long first = 0, end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &first, &end) == 2) {
      auto const place = reinterpret_cast<std::uintptr_t>(address);
      here = first <= place && place < end;
    } else if (here && line.starts_with("VmFlags:")) {
      return line.find(" hg") != std::string::npos;
    }
  }
  return false;
}

} // namespace

TEST_CASE("large pages are asked for where they fit entirely") {
  if (!std::filesystem::exists("/sys/kernel/mm/transparent_hugepage")) SKIP("the system has no large pages");
  constexpr std::uint64_t page = 4096;
  Untouched const memory(4 * large_page_bytes);
  auto const first = reinterpret_cast<std::uintptr_t>(memory.begin());
  std::byte* const aligned = memory.begin() + (large_page_bytes - first % large_page_bytes) % large_page_bytes;

  // The range begins before a large page and ends within one: one page fits.
  ask_for_large_pages(aligned + page, 2 * large_page_bytes);
  CHECK_FALSE(is_asked_for(aligned + page));
  CHECK(is_asked_for(aligned + large_page_bytes));
  CHECK(is_asked_for(aligned + 2 * large_page_bytes - page));
  CHECK_FALSE(is_asked_for(aligned + 2 * large_page_bytes));
}

TEST_CASE("too small a range asks for nothing") {
  Untouched const memory(2 * large_page_bytes);
  ask_for_large_pages(memory.begin() + 1, large_page_bytes);
  ask_for_large_pages(memory.begin(), 0);
  for (std::uint64_t i = 0; i < 2 * large_page_bytes; i += 4096) CHECK_FALSE(is_asked_for(memory.begin() + i));
}

TEST_CASE("shared memory of which some pages are there gets large pages, if the system makes any") {
  Shared const memory;
  memory.touch();
  Shared const probe;
  probe.touch();
  constexpr int collapse = 25; // MADV_COLLAPSE
  if (madvise(probe.begin(), Shared::bytes, collapse) != 0) SKIP("the system makes no large pages of shared memory");
  std::uint64_t const before = bytes_in_large_pages();
  make_large_pages(memory.begin(), Shared::bytes);
  CHECK(bytes_in_large_pages() == before + Shared::bytes);
  for (std::uint64_t i = 0; i < Shared::bytes; ++i)
    if (memory.begin()[i] != (i % large_page_bytes == 0 ? std::byte{7} : std::byte{0}))
      FAIL("byte " << i << " changed");
}
