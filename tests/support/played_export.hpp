#pragma once

// A host that looks like a device whose memory other processes map (comm/execution/buffers.hpp): an allocation is a
// file without a name, which its process alone can lend, and a handle says where others find it. Counts what is there.

#include "comm/execution/buffers.hpp"
#include "comm/execution/communicator.hpp"
#include "core/error.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <map>

namespace trainstone::test {

/// While it lives, segments that are made have their parts in such memory. They must end before it does.
class PlayedExport {
public:
  PlayedExport() : m_hook(played_export(), [] { return &calls; }) {}

  /// Allocations of this process, and those of others that it has mapped.
  static std::size_t allocated() { return files().size(); }
  static std::size_t mapped() { return mappings().size(); }

  /// What a device may refuse, or do wrong.
  enum class Fault { none, allocates_nothing, maps_nothing, maps_something_else };
  static Fault& fault() {
    static Fault now = Fault::none;
    return now;
  }

private:
  struct File {
    int descriptor;
    std::uint64_t bytes;
  };
  struct Lent {
    pid_t process;
    File file;
  };
  static std::map<std::byte*, File>& files() {
    static std::map<std::byte*, File> all;
    return all;
  }
  static std::map<std::byte*, std::uint64_t>& mappings() {
    static std::map<std::byte*, std::uint64_t> all;
    return all;
  }

  static std::byte* map_file(int descriptor, std::uint64_t bytes) {
    void* const begin = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    TRAINSTONE_REQUIRE(begin != MAP_FAILED, "mmap of {} bytes failed", bytes);
    return static_cast<std::byte*>(begin);
  }
  static std::byte* allocate(std::uint64_t bytes) {
    if (fault() == Fault::allocates_nothing) throw Error("played device: no memory");
    TRAINSTONE_REQUIRE(bytes % calls.granularity == 0 && bytes > 0, "{} bytes are no multiple", bytes);
    int const descriptor = memfd_create("played", MFD_CLOEXEC);
    TRAINSTONE_REQUIRE(descriptor >= 0 && ftruncate(descriptor, static_cast<off_t>(bytes)) == 0, "no file of {} bytes",
                       bytes);
    std::byte* const begin = map_file(descriptor, bytes);
    files()[begin] = {descriptor, bytes};
    return begin;
  }
  static MemoryExport::Handle handle(std::byte* allocated) {
    Lent const lent{getpid(), files().at(allocated)};
    MemoryExport::Handle bytes{};
    static_assert(sizeof lent <= sizeof bytes);
    std::memcpy(bytes.data(), &lent, sizeof lent);
    return bytes;
  }
  static std::byte* map(MemoryExport::Handle const& handle) {
    Lent lent{};
    std::memcpy(&lent, handle.data(), sizeof lent);
    if (fault() == Fault::maps_nothing || lent.process == getpid()) throw Error("played device: cannot map");
    std::string const path = fmt::format("/proc/{}/fd/{}", lent.process, lent.file.descriptor);
    int const descriptor = fault() == Fault::maps_something_else ? memfd_create("played", MFD_CLOEXEC)
                                                                 : open(path.c_str(), O_RDWR | O_CLOEXEC);
    TRAINSTONE_REQUIRE(descriptor >= 0 && ftruncate(descriptor, static_cast<off_t>(lent.file.bytes)) == 0, "no {}",
                       path);
    std::byte* const begin = map_file(descriptor, lent.file.bytes);
    close(descriptor);
    mappings()[begin] = lent.file.bytes;
    return begin;
  }
  static void unmap(std::byte* mapped) noexcept {
    auto const found = mappings().find(mapped);
    munmap(mapped, found->second);
    mappings().erase(found);
  }
  static void free(std::byte* allocated) noexcept {
    auto const found = files().find(allocated);
    munmap(allocated, found->second.bytes);
    close(found->second.descriptor);
    files().erase(found);
  }

  static constexpr MemoryExport calls{std::uint64_t{1} << 16, allocate, handle, map, unmap, free};

  trainstone::PlayedExport::Scoped m_hook;
};

/// On the last rank alone.
class FaultOfOne {
public:
  FaultOfOne(Communicator const& communicator, PlayedExport::Fault fault) {
    if (communicator.rank() + 1 == communicator.size()) PlayedExport::fault() = fault;
  }
  FaultOfOne(FaultOfOne const&) = delete;
  FaultOfOne& operator=(FaultOfOne const&) = delete;
  ~FaultOfOne() { PlayedExport::fault() = PlayedExport::Fault::none; }
};

} // namespace trainstone::test
