#include "comm/execution/node_memory.hpp"

#include "comm/execution/control.hpp"
#include "core/error.hpp"

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
  on_all_ranks(communicator, "map shared memory", [&] {
    void* const mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, m_file.descriptor(), 0);
    if (mapped == MAP_FAILED) fail(fmt::format("mmap of {} bytes", bytes), errno);
    m_mapping = std::unique_ptr<std::byte, Unmap>(static_cast<std::byte*>(mapped), Unmap{bytes});
  });
}

void NodeMemory::Unmap::operator()(std::byte* begin) const { munmap(begin, bytes); }

void NodeMemory::populate(std::uint64_t offset, std::uint64_t bytes) const {
  if (bytes == 0) return;
  if (fallocate(m_file.descriptor(), 0, static_cast<off_t>(offset), static_cast<off_t>(bytes)) != 0)
    fail(fmt::format("making pages for {} bytes of shared memory", bytes), errno);
  for (std::uint64_t page = 0; page < bytes; page += page_bytes()) begin()[offset + page] = std::byte{0};
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
