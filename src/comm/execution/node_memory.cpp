#include "comm/execution/node_memory.hpp"

#include "comm/execution/control.hpp"
#include "core/error.hpp"
#include "core/large_pages.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <exception>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace trainstone::Impl {

namespace {

[[noreturn]] void fail(std::string_view call, int error) {
  throw Error(fmt::format("{}: {}", call, std::strerror(error)));
}

File checked(int descriptor, std::string_view call) {
  if (descriptor < 0) fail(call, errno);
  return File(descriptor);
}

/// Where the other processes of a node find the file that its first rank made.
struct Address {
  pid_t process = 0;
  int descriptor = -1;
  std::uint64_t device = 0; ///< with the inode: which file it must turn out to be
  std::uint64_t inode = 0;
  std::array<char, 64> name{};
};

struct stat status(File const& file) {
  struct stat found{};
  if (fstat(file.descriptor(), &found) != 0) fail("fstat", errno);
  return found;
}

std::array<char, 64> random_name() {
  std::random_device device;
  std::array<char, 64> name{};
  fmt::format_to_n(name.data(), name.size() - 1, "/trainstone-{}-{:08x}{:08x}{:08x}", getpid(), device(), device(),
                   device());
  return name;
}

File create(Sharing sharing, std::uint64_t bytes, Address& address) {
  address.process = getpid();
  if (sharing == Sharing::named) address.name = random_name();
  File file = sharing == Sharing::nameless
                  ? checked(memfd_create("trainstone", MFD_CLOEXEC), "memfd_create")
                  : checked(shm_open(address.name.data(), O_CREAT | O_EXCL | O_RDWR, 0600), "shm_open");
  if (ftruncate(file.descriptor(), static_cast<off_t>(bytes)) != 0) fail("ftruncate", errno);
  struct stat const found = status(file);
  address.descriptor = file.descriptor();
  address.device = found.st_dev;
  address.inode = found.st_ino;
  return file;
}

File open_neighbours(Sharing sharing, Address const& address) {
  std::string const path = sharing == Sharing::nameless
                               ? fmt::format("/proc/{}/fd/{}", address.process, address.descriptor)
                               : std::string(address.name.data());
  File file = sharing == Sharing::nameless ? checked(open(path.c_str(), O_RDWR | O_CLOEXEC), path)
                                           : checked(shm_open(path.c_str(), O_RDWR, 0600), path);
  struct stat const found = status(file);
  if (found.st_dev != address.device || found.st_ino != address.inode) { // another process of that number
    throw Error(fmt::format("{} is another file here than at the process that made it", path));
  }
  return file;
}

std::byte* mapped(void* at, std::uint64_t bytes, int protection, int flags, int descriptor) {
  void* const begin = mmap(at, bytes, protection, flags, descriptor, 0);
  if (begin == MAP_FAILED) fail(fmt::format("mmap of {} bytes", bytes), errno);
  return static_cast<std::byte*>(begin);
}

/// The file in memory, aligned to a large page: the system puts it anywhere, but into a place that is reserved.
std::byte* map(File const& file, std::uint64_t bytes) {
  std::uint64_t const room = bytes + large_page_bytes;
  std::byte* const reserved = mapped(nullptr, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
  auto const before = -reinterpret_cast<std::uintptr_t>(reserved) % large_page_bytes;
  std::byte* begin = nullptr;
  try {
    begin = mapped(reserved + before, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file.descriptor());
  } catch (...) {
    munmap(reserved, room);
    throw;
  }
  std::byte* const end = begin + round_up(bytes, page_bytes());
  if (before > 0) munmap(reserved, before);
  if (reserved + room > end) munmap(end, static_cast<std::size_t>(reserved + room - end));
  return begin;
}

/// Makes the pages of a range, so that touching them ends in no bus error.
void make_pages(File const& file, std::uint64_t offset, std::uint64_t bytes) {
  if (fallocate(file.descriptor(), 0, static_cast<off_t>(offset), static_cast<off_t>(bytes)) != 0)
    fail(fmt::format("making pages for {} bytes of shared memory", bytes), errno);
}

} // namespace

File& File::operator=(File&& other) noexcept {
  std::swap(m_descriptor, other.m_descriptor);
  return *this;
}

File::~File() {
  if (m_descriptor >= 0) close(m_descriptor);
}

std::string_view to_string(Sharing sharing) { return sharing == Sharing::nameless ? "nameless" : "named"; }

std::uint64_t page_bytes() { return static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE)); }

void on_all_ranks(Communicator const& communicator, std::string_view what, std::function<void()> const& body) {
  std::string error;
  try {
    body();
  } catch (std::exception const& caught) { // memory may run out, too
    error = caught.what();
  }
  std::vector<std::string> const errors = all_gather_texts(communicator, error);
  for (std::size_t rank = 0; rank < errors.size(); ++rank) {
    if (!errors[rank].empty()) throw CollectiveError(fmt::format("rank {} cannot {}: {}", rank, what, errors[rank]));
  }
}

NodeMemory::NodeMemory(Communicator const& communicator, std::uint64_t bytes, Sharing sharing) {
  Rank const first = communicator.topology().neighbours(communicator.rank()).front();
  bool const creates = communicator.rank() == first;
  Address address;
  std::exception_ptr error;
  try {
    on_all_ranks(communicator, "make shared memory", [&] {
      if (creates) m_file = create(sharing, bytes, address);
    });
    address = all_gather_values(communicator, address)[static_cast<std::size_t>(first)];
    on_all_ranks(communicator, "open its neighbour's shared memory", [&] {
      if (!creates) m_file = open_neighbours(sharing, address);
    });
  } catch (CollectiveError const&) {
    error = std::current_exception();
  }
  if (creates && address.name[0] != '\0') shm_unlink(address.name.data());
  if (error) std::rethrow_exception(error);
  on_all_ranks(communicator, "map shared memory",
               [&] { m_mapping = std::unique_ptr<std::byte, Unmap>(map(m_file, bytes), Unmap{bytes}); });
}

void NodeMemory::Unmap::operator()(std::byte* begin) const { munmap(begin, bytes); }

void NodeMemory::populate(std::uint64_t offset, std::uint64_t bytes) const {
  if (bytes == 0) return;
  std::uint64_t const end = offset + bytes;
  std::uint64_t const first = round_up(offset, large_page_bytes), last = end / large_page_bytes * large_page_bytes;
  for (std::uint64_t page = first; page < last; page += large_page_bytes) { // one small page of each must be there
    make_pages(m_file, page, page_bytes());
    begin()[page] = std::byte{0};
  }
  if (first < last) make_large_pages(begin() + first, last - first);
  make_pages(m_file, offset, bytes);
  for (std::uint64_t page = offset; page < end; page += page_bytes()) begin()[page] = std::byte{0};
}

NodeMemory share_memory(Communicator const& communicator, std::string_view purpose, std::uint64_t bytes) {
  try {
    return {communicator, bytes, Sharing::nameless};
  } catch (CollectiveError const& nameless) {
    try {
      return {communicator, bytes, Sharing::named};
    } catch (CollectiveError const& named) {
      throw CollectiveError(
          fmt::format("shared memory for {}: {}; and with a name: {}", purpose, nameless.what(), named.what()));
    }
  }
}

} // namespace trainstone::Impl
