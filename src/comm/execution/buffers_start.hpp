#pragma once

// Finds out about devices when a program starts: how many there are, whether MPI takes their memory, and whether the
// ranks of a node reach each other's. Owns the question to the library and the proofs: messages from device memory to
// device memory (comm/execution/message_proof.hpp), and kernels on neighbours' memory (comm/execution/part_proof.hpp).
// Never passes device memory to a library that does not say that it takes it, because such libraries crash.

#include "comm/execution/communicator.hpp"
#include "core/views.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace trainstone {

/// Call this before Kokkos is initialised. \throws InputError in builds whose device memory MPI cannot export to other
/// processes
void require_usable_device_memory();

/// Devices for kernels on this machine; 0 where kernels run on the host. Also before Kokkos is initialised.
int devices();

/// Every rank's device, as current_device() names it. Collective.
std::vector<std::string> devices_of_ranks(Communicator const& communicator);

struct DeviceMessages {
  bool proved = false;
  std::string finding; ///< what was found, or why it was not tried
};

/// Every rank sends to the next rank and checks what it receives. Collective; waits. The result is the same on all
/// ranks. If kernels run on the host, nothing is tried.
DeviceMessages prove_device_messages(Communicator const& communicator, ExecutionSpace const& exec);

struct NeighbourMemory {
  bool proved = false;
  std::string finding; ///< what was found, or why it was not tried
};

/// Every rank's kernels write and read memory that the ranks of its node share, and check it. Collective; waits. The
/// result is the same on all ranks. If kernels work on the host's pages, nothing is tried, and it is proved.
NeighbourMemory prove_neighbour_memory(Communicator const& communicator, ExecutionSpace const& exec);

/// What both proofs have found.
struct DeviceFindings {
  DeviceMessages messages;
  NeighbourMemory neighbours;
};
DeviceFindings prove_device_memory(Communicator const& communicator, ExecutionSpace const& exec);

/// "staged", "device, node memory by IPC": what MPI is given, and how a device reaches its neighbours' memory, if it
/// does.
std::string describe_buffers(Communicator const& communicator);

/// The memory that MPI gets if a deck says `name`. auto takes device memory if it is proved.
/// \throws InputError if it is refused, or device memory is not proved
MessageBuffers choose_buffers(std::string_view name, DeviceMessages const& found);

/// The memory that MPI gets if no deck says so: choose_buffers("auto") after a proof. Collective.
MessageBuffers usual_buffers(Communicator const& communicator, ExecutionSpace const& exec);

} // namespace trainstone
