#pragma once

// MPI's life in this process. Owns MPI_Init_thread and MPI_Finalize. Promises: a program started without a launcher
// is one rank. Communicators must not outlive it.

#include <string>
#include <string_view>

namespace trainstone {

/// Lives in main() for as long as MPI is used; thread level MPI_THREAD_FUNNELED.
class MpiEnvironment {
public:
  MpiEnvironment(int& argc, char**& argv);
  MpiEnvironment(MpiEnvironment const&) = delete;
  MpiEnvironment& operator=(MpiEnvironment const&) = delete;
  ~MpiEnvironment();

  int world_rank() const;
  int world_size() const;
  /// The library in short: "MPICH 5.0.2".
  std::string library() const;

  /// Ends all ranks; the launcher returns `code`. For main(), after it has printed why.
  [[noreturn]] void abort(int code) const;
};

/// Name and version out of what MPI_Get_library_version says, which may be many lines.
std::string short_library_version(std::string_view full);

} // namespace trainstone
