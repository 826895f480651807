#pragma once

// MPI's life in this process. Owns MPI_Init_thread and MPI_Finalize. Promises: a program started without a launcher
// is one rank. Communicators must not outlive it.

#include <string>
#include <string_view>

namespace trainstone {

/// Who calls MPI: the main thread alone, or others beside it (a progress thread). Asking for the second makes some
/// libraries choose slower collectives.
enum class MpiThreads { main_only, multiple };

/// Lives in main() for as long as MPI is used.
class MpiEnvironment {
public:
  /// \throws Error if MPI does not allow as many threads
  MpiEnvironment(int& argc, char**& argv, MpiThreads threads = MpiThreads::main_only);
  MpiEnvironment(MpiEnvironment const&) = delete;
  MpiEnvironment& operator=(MpiEnvironment const&) = delete;
  ~MpiEnvironment();

  int world_rank() const;
  int world_size() const;
  /// Which MPI it is, in short: "MPICH 5.0.2".
  std::string implementation() const;
  /// What MPI allows: "MPI_THREAD_FUNNELED".
  std::string thread_level() const;

  /// Ends all ranks; the launcher returns `code`. For main(), after it has printed why.
  [[noreturn]] void abort(int code) const;
};

/// Name and version out of what MPI_Get_library_version says, which may be many lines.
std::string short_library_version(std::string_view full);

} // namespace trainstone
