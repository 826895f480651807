#include "comm/buffers_start.hpp"

#include "comm/buffers.hpp"
#include "comm/control.hpp"
#include "comm/mpi.hpp"
#include "core/host_copy.hpp"
#include "core/launch.hpp"

#include <cstdint>

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

/// Of a rank's element: no two alike within a message, other ones from every rank.
KOKKOS_INLINE_FUNCTION std::uint32_t pattern(Rank rank, Index i) {
  return static_cast<std::uint32_t>(i) * 2654435761u ^ static_cast<std::uint32_t>(rank) * 0x9e3779b9u;
}

struct WritePattern {
  Vector<std::uint32_t> to;
  Rank rank;
  KOKKOS_FUNCTION void operator()(Index i) const { to(i) = pattern(rank, i); }
};

struct CountWrong {
  Vector<std::uint32_t> from;
  Rank rank;
  KOKKOS_FUNCTION void operator()(Index i, Index& wrong) const { wrong += from(i) == pattern(rank, i) ? 0 : 1; }
};

using Elements = Kokkos::RangePolicy<ExecutionSpace, Kokkos::IndexType<Index>>;

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

Index Impl::wrong_elements(Communicator const& communicator, ExecutionSpace const& exec, Index elements) {
  Rank const rank = communicator.rank(), ranks = communicator.size();
  Rank const next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
  MemoryLedger ledger; // the run has not allocated yet
  Allocation const memory(ledger, MemoryCategory::buffers, "prove_device_messages",
                          2 * Arena::footprint(static_cast<std::uint64_t>(elements) * sizeof(std::uint32_t)));
  Arena arena(memory.bytes());
  auto const sent = arena.vector<std::uint32_t>("sent", elements);
  auto const received = arena.vector<std::uint32_t>("received", elements);
  launch_for({"trainstone::comm::write_pattern"}, Elements(exec, 0, elements), WritePattern{sent, rank});
  launch_for({"trainstone::comm::write_pattern"}, Elements(exec, 0, elements), WritePattern{received, rank});
  exec.fence("trainstone::comm::prove_device_messages: MPI touches the memory");
  auto const count = static_cast<int>(elements);
  MPI_Comm const comm = communicator.handle().comm;
  TRAINSTONE_MPI_CHECK(MPI_Sendrecv(sent.data(), count, MPI_UINT32_T, next, 0, received.data(), count, MPI_UINT32_T,
                                    previous, 0, comm, MPI_STATUS_IGNORE));
  Index wrong = 0;
  launch_reduce({"trainstone::comm::check_pattern"}, Elements(exec, 0, elements), CountWrong{received, previous},
                wrong);
  return wrong;
}

DeviceMessages prove_device_messages(Communicator const& communicator, ExecutionSpace const& exec) {
  if (host_reaches_memory) return {false, "kernels work on the host's memory"};
  for (int const takes : all_gather_values(communicator, takes_device_memory() ? 1 : 0))
    if (takes == 0) return {false, "the MPI library does not say that it takes device memory"};
  for (Index const elements : {1, 257, 3 << 20}) { // by the ways that libraries have for short and long messages
    for (Index const wrong : all_gather_values(communicator, Impl::wrong_elements(communicator, exec, elements)))
      if (wrong > 0)
        return {false,
                fmt::format("the MPI library says that it takes device memory, but {} of {} elements arrive wrong",
                            wrong, elements)};
  }
  return {true, "messages between device memories arrive"};
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
