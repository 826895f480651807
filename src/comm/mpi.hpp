#pragma once

// MPI as the rest of src/comm uses it: the one header that includes mpi.h. Owns the check that every call goes
// through and the handles behind the public classes. For src/comm/*.cpp alone.

#include "core/error.hpp"

#include <mpi.h>

#include <string>
#include <vector>

namespace trainstone::Impl {

inline void check_mpi(int code, char const* call, char const* file, int line) {
  if (code == MPI_SUCCESS) return;
  char message[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, message, &length);
  fail_requirement(file, line, call, fmt::format("MPI error {}: {}", code, message));
}

/// What a Communicator owns.
struct CommunicatorHandle {
  MPI_Comm comm = MPI_COMM_NULL;
};

/// The messages of an Execution's round in flight.
struct Requests {
  std::vector<MPI_Request> active;
};

} // namespace trainstone::Impl

/// Around every MPI call that returns a code: throws with the call, the code and MPI's own words for it.
#define TRAINSTONE_MPI_CHECK(call) ::trainstone::Impl::check_mpi((call), #call, __FILE__, __LINE__)
