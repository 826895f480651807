#pragma once

// What a program finds out about devices and MPI when it starts: how many devices there are, and whether MPI can be
// given their memory. Owns the question to the library and the proof: messages from device memory to device memory
// (comm/message_proof.hpp). Never gives device memory to a library that does not say that it takes it: such libraries
// crash.

#include "comm/communicator.hpp"
#include "core/views.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace trainstone {

/// Before Kokkos is initialised. \throws InputError in builds whose device memory MPI cannot export to other processes
void require_usable_device_memory();

/// Devices for kernels on this machine; 0 where kernels run on the host. Also before Kokkos is initialised.
int devices();

/// Every rank's device, as current_device() names it. Collective.
std::vector<std::string> devices_of_ranks(Communicator const& communicator);

struct DeviceMessages {
  bool proved = false;
  std::string finding; ///< what was found, or why it was not tried
};

/// Every rank sends to the next one and checks what it gets. Collective; the same on all ranks; waits. Where kernels
/// run on the host nothing is tried.
DeviceMessages prove_device_messages(Communicator const& communicator, ExecutionSpace const& exec);

/// What MPI is given where a deck says `name`: auto takes device memory if it is proved.
/// \throws InputError if it is refused, or device memory is not proved
MessageBuffers choose_buffers(std::string_view name, DeviceMessages const& found);

/// What MPI is given where nobody says: choose_buffers("auto") of what is found out here. Collective.
MessageBuffers usual_buffers(Communicator const& communicator, ExecutionSpace const& exec);

} // namespace trainstone
