#include "comm/execution/environment.hpp"

#include "comm/execution/mpi.hpp"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <thread>

#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace trainstone {

namespace {

std::string thread_level_name(int level) {
  switch (level) {
  case MPI_THREAD_SINGLE: return "MPI_THREAD_SINGLE";
  case MPI_THREAD_FUNNELED: return "MPI_THREAD_FUNNELED";
  case MPI_THREAD_SERIALIZED: return "MPI_THREAD_SERIALIZED";
  case MPI_THREAD_MULTIPLE: return "MPI_THREAD_MULTIPLE";
  }
  return fmt::format("thread level {}", level);
}

/// Waits until the launcher has read what lies in the pipe of this stream, for at most two seconds. A launcher that
/// is told of an abort forgets what it has not read yet. A stream that is no pipe needs no wait.
void wait_for_reader(int stream) {
  using namespace std::chrono;
  struct stat about{};
  if (fstat(stream, &about) != 0 || !S_ISFIFO(about.st_mode)) return;
  auto const end = steady_clock::now() + seconds(2);
  int unread = 0;
  while (ioctl(stream, FIONREAD, &unread) == 0 && unread > 0 && steady_clock::now() < end)
    std::this_thread::sleep_for(milliseconds(5));
}

} // namespace

MpiEnvironment::MpiEnvironment(int& argc, char**& argv, MpiThreads threads) {
  int const required = threads == MpiThreads::main_only ? MPI_THREAD_FUNNELED : MPI_THREAD_MULTIPLE;
  int provided = MPI_THREAD_SINGLE;
  TRAINSTONE_MPI_CHECK(MPI_Init_thread(&argc, &argv, required, &provided));
  TRAINSTONE_REQUIRE(provided >= required, "this MPI gives {}, below {}", thread_level_name(provided),
                     thread_level_name(required));
}

MpiEnvironment::~MpiEnvironment() { MPI_Finalize(); }

int MpiEnvironment::world_rank() const {
  int rank = 0;
  TRAINSTONE_MPI_CHECK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
  return rank;
}

int MpiEnvironment::world_size() const {
  int size = 0;
  TRAINSTONE_MPI_CHECK(MPI_Comm_size(MPI_COMM_WORLD, &size));
  return size;
}

std::string MpiEnvironment::implementation() const {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  TRAINSTONE_MPI_CHECK(MPI_Get_library_version(text, &length));
  return short_library_version({text, static_cast<std::size_t>(length)});
}

std::string MpiEnvironment::thread_level() const {
  int provided = MPI_THREAD_SINGLE;
  TRAINSTONE_MPI_CHECK(MPI_Query_thread(&provided));
  return thread_level_name(provided);
}

void MpiEnvironment::abort(int code) const {
  std::fflush(nullptr);
  wait_for_reader(STDOUT_FILENO);
  wait_for_reader(STDERR_FILENO);
  MPI_Abort(MPI_COMM_WORLD, code);
  std::_Exit(code);
}

std::string short_library_version(std::string_view full) {
  // "MPICH Version:      5.0.2\n...", "Open MPI v5.0.7, package: ...", "MVAPICH2 Version      :\t2.3.7\n..."
  std::istringstream words{std::string(full.substr(0, full.find_first_of("\n,")))};
  std::string name;
  for (std::string word; words >> word;) {
    bool const is_version = word.find_first_of("0123456789") == (word.starts_with('v') ? 1u : 0u);
    if (is_version) return fmt::format("{} {}", name, word.substr(word.starts_with('v') ? 1 : 0));
    if (word == "Version" || word == "Version:" || word == ":") continue;
    name += (name.empty() ? "" : " ") + word;
  }
  return name;
}

} // namespace trainstone
