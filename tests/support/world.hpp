#pragma once

// All ranks as a run of this build has them, and the way out of tests that a device has nothing for.

#include "comm/execution/buffers_start.hpp"
#include "comm/execution/communicator.hpp"
#include "core/views.hpp"

#include <catch2/catch_test_macros.hpp>

namespace trainstone::test {

/// Messages of kernels' memory can be sent on it.
inline Communicator world(int emulated_nodes = 0) {
  Communicator communicator = Communicator::world(emulated_nodes);
  communicator.use_buffers(usual_buffers(communicator, ExecutionSpace()), ExecutionSpace());
  communicator.use_neighbours_memory(prove_neighbour_memory(communicator, ExecutionSpace()).proved);
  return communicator;
}

/// Ends the test case where kernels' memory is not the host's. No member: nvcc 13.0 does not end on Catch2's macros in
/// one.
inline void skip_on_devices(char const* reason) {
  if (!host_reaches_memory) SKIP(reason);
}

} // namespace trainstone::test
