#pragma once

// MPI as the rest of src/comm uses it: the one header that includes mpi.h. Owns the check that every call goes
// through, the handle behind Communicator and MPI's names of element types. For .cpp files of src/comm and what they
// alone include: public headers know nothing of MPI.

#include "comm/execution/network_ports.hpp"
#include "comm/schedule/element.hpp"
#include "comm/schedule/fingerprint.hpp"
#include "comm/schedule/message_buffers.hpp"
#include "core/error.hpp"
#include "core/views.hpp"

#include <mpi.h>

#include <cstdint>
#include <memory>
#include <set>
#include <string>

namespace trainstone {
struct CopyInstances; // comm/execution/buffers.hpp
}

namespace trainstone::Impl {

inline void check_mpi(int code, char const* call, char const* file, int line) {
  if (code == MPI_SUCCESS) return;
  char message[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, message, &length);
  fail_requirement(file, line, call, fmt::format("MPI error {}: {}", code, message));
}

struct OpenComparisons; // comm/execution/order_check.hpp

/// What a Communicator owns.
struct CommunicatorHandle {
  MPI_Comm comm = MPI_COMM_NULL;
  int largest_tag = 0;
  int next_tag = 0;
  std::set<int> held_tags;
  MPI_Comm order = MPI_COMM_NULL;                    ///< a message space for the order check; null: not checked
  std::shared_ptr<OpenComparisons> open_comparisons; ///< of the order check; null: not checked
  bool failed = false;                               ///< an error has left collectives unfinished
  std::uint64_t calls = 0;                           ///< of collectives
  Fingerprint order_fingerprint;                     ///< of all of them
  std::shared_ptr<NetworkPorts const> ports;         ///< of an emulated network; null: none
  MessageBuffers buffers = MessageBuffers::host;
  std::shared_ptr<CopyInstances const>
      copies; ///< where messages are staged; shared with communicators made of this one
  bool reaches_neighbours = host_reaches_memory; ///< in kernels
};

/// A type that MPI does not have travels as integers of its size: whoever uses it may move elements, not add them up.
MPI_Datatype mpi_type(ElementType type);

} // namespace trainstone::Impl

/// Around every MPI call that returns a code: throws with the call, the code and MPI's own words for it.
#define TRAINSTONE_MPI_CHECK(call) ::trainstone::Impl::check_mpi((call), #call, __FILE__, __LINE__)
