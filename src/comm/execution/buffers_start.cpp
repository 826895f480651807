#include "comm/execution/buffers_start.hpp"

#include "comm/execution/buffers.hpp"
#include "comm/execution/control.hpp"
#include "comm/execution/message_proof.hpp"
#include "comm/execution/mpi.hpp"
#include "comm/execution/part_proof.hpp"
#include "core/error.hpp"

#if __has_include(<mpi-ext.h>)
#include <mpi-ext.h> // Open MPI's
#endif

namespace trainstone {

namespace {

/// What the library says of itself.
bool takes_device_memory() {
#if defined(MPIX_GPU_SUPPORT_CUDA)
  int is_supported = 0;
  TRAINSTONE_MPI_CHECK(MPIX_GPU_query_support(MPIX_GPU_SUPPORT_CUDA, &is_supported));
  return is_supported != 0;
#elif defined(MPIX_CUDA_AWARE_SUPPORT)
  return MPIX_Query_cuda_support() == 1;
#else
  return false;
#endif
}

} // namespace

void require_usable_device_memory() {
#ifdef KOKKOS_ENABLE_IMPL_CUDA_MALLOC_ASYNC
  throw InputError("this Kokkos allocates with cudaMallocAsync, whose memory MPI cannot export to other processes: it "
                   "must be built with Kokkos_ENABLE_IMPL_CUDA_MALLOC_ASYNC=OFF");
#endif
}

int devices() { return host_reaches_memory ? 0 : Kokkos::num_devices(); }

std::vector<std::string> devices_of_ranks(Communicator const& communicator) {
  return all_gather_texts(communicator, current_device().id);
}

DeviceMessages prove_device_messages(Communicator const& communicator, ExecutionSpace const& exec) {
  if (host_reaches_memory) return {false, "kernels work on the host's memory"};
  for (int const takes : all_gather_values(communicator, takes_device_memory() ? 1 : 0))
    if (takes == 0) return {false, "the MPI library does not say that it takes device memory"};
  for (Index const elements : {1, 257, 3 << 20}) { // by the ways that libraries have for short and long messages
    for (Index const wrong : all_gather_values(communicator, Impl::wrong_elements(communicator, exec, elements)))
      if (wrong > 0)
        return {false, fmt::format("the MPI library says that it takes device memory, but {} elements arrive wrong in "
                                   "messages of {}",
                                   wrong, elements)};
  }
  return {true, "messages between device memories arrive, in one piece and in several"};
}

NeighbourMemory prove_neighbour_memory(Communicator const& communicator, ExecutionSpace const& exec) {
  if (!memory_export()) return {true, "the ranks of a node share pages of the host"};
  try {
    for (Index const elements : {3 << 20, 257}) // several granules, and a part of one
      for (Index const wrong : all_gather_values(communicator, Impl::wrong_in_parts(communicator, exec, elements)))
        if (wrong > 0)
          return {false, fmt::format("ranks of a node map each other's device memory, but {} of {} elements are wrong "
                                     "there",
                                     wrong, elements)};
  } catch (CollectiveError const& error) {
    return {false, error.what()};
  }
  return {true, "kernels reach the device memory of all ranks of their node"};
}

DeviceFindings prove_device_memory(Communicator const& communicator, ExecutionSpace const& exec) {
  return {prove_device_messages(communicator, exec), prove_neighbour_memory(communicator, exec)};
}

std::string describe_buffers(Communicator const& communicator) {
  bool const maps = memory_export() && communicator.reaches_neighbours() && communicator.node_size() > 1;
  return fmt::format("{}{}", to_string(communicator.buffers()), maps ? ", node memory by IPC" : "");
}

MessageBuffers choose_buffers(std::string_view name, DeviceMessages const& found) {
  if (name == "auto" && found.proved) return MessageBuffers::device;
  MessageBuffers const buffers = resolve_buffers(name);
  TRAINSTONE_REQUIRE_INPUT(buffers != MessageBuffers::device || found.proved,
                           "comm.buffers = \"device\": {}; legal values: auto, staged", found.finding);
  return buffers;
}

MessageBuffers usual_buffers(Communicator const& communicator, ExecutionSpace const& exec) {
  return choose_buffers("auto", prove_device_messages(communicator, exec));
}

} // namespace trainstone
