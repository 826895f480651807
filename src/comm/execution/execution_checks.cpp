// What an Execution refuses before it prepares anything.

#include "comm/execution/buffers.hpp"
#include "comm/execution/execution.hpp"
#include "comm/execution/mpi.hpp"

#include <algorithm>

namespace trainstone {

namespace {

/// Ranks of a node run the same schedule but for their places: what one reads or writes of the others, they read or
/// write of it. Ranks that have barriers alone (with an empty block, or not the root of a push) are the exception:
/// neighbour_address() looks after them.
bool is_seen_by_neighbours(Schedule const& schedule, BufferId buffer) {
  auto const touches = [buffer](Slice const& slice) { return slice.owner != own_memory && slice.buffer == buffer; };
  return std::ranges::any_of(schedule.rounds, [&](Round const& round) {
    return std::ranges::any_of(round, [&](Move const& move) { return touches(move.from) || touches(move.to); });
  });
}

} // namespace

void Execution::require_extents() const {
  TRAINSTONE_REQUIRE(m_schedule.rank == m_communicator->rank() && m_schedule.ranks == m_communicator->size(),
                     "the schedule is for rank {} of {}, this is rank {} of {}", m_schedule.rank, m_schedule.ranks,
                     m_communicator->rank(), m_communicator->size());
  Pieces const& pieces = m_options.pieces;
  TRAINSTONE_REQUIRE((pieces.is_contiguous() ? m_data.elements : pieces.elements()) == m_schedule.elements &&
                         pieces.extent() <= m_data.elements,
                     "the schedule is for {} elements, the data has {}, its pieces {} in {}", m_schedule.elements,
                     m_data.elements, pieces.elements(), pieces.extent());
  TRAINSTONE_REQUIRE(m_scratch.elements >= m_schedule.scratch_elements,
                     "the schedule needs {} elements of scratch, there are {}", m_schedule.scratch_elements,
                     m_scratch.elements);
  TRAINSTONE_REQUIRE(m_options.longest_message >= 1 && m_options.longest_message <= longest_mpi_message,
                     "the longest message must have 1 to {} elements, not {}", longest_mpi_message,
                     m_options.longest_message);
  TRAINSTONE_REQUIRE(std::ranges::none_of(m_schedule.rounds, [](Round const& round) { return round.empty(); }),
                     "the schedule of {} {} has an empty round", to_string(m_schedule.collective),
                     to_string(m_schedule.algorithm));
  TRAINSTONE_REQUIRE(m_buffers != MessageBuffers::host || m_options.on_host || host_reaches_memory,
                     "MPI is given the host's memory on this communicator, the data lies in {}: its messages must be "
                     "staged, or MPI given device memory",
                     MemorySpace::name());
  std::uint64_t const staging = staging_bytes(m_buffers, m_schedule, size_of(m_type), m_options.longest_message);
  TRAINSTONE_REQUIRE(m_options.staging.size() >= staging,
                     "the messages of {} {} need {} bytes of staging, there are {}", to_string(m_schedule.collective),
                     to_string(m_schedule.algorithm), staging, m_options.staging.size());
}

void Execution::require_shared_buffers() const {
  SharedSegment const* const segment = m_options.segment;
  TRAINSTONE_REQUIRE(host_reaches_memory || !m_options.on_host,
                     "{} {} moves data in the node's shared memory, which is the device's: the host does not reach it",
                     to_string(m_schedule.collective), to_string(m_schedule.algorithm));
  TRAINSTONE_REQUIRE(m_communicator->reaches_neighbours(),
                     "{} {} moves data in shared memory, and kernels are not known to reach that of their neighbours",
                     to_string(m_schedule.collective), to_string(m_schedule.algorithm));
  TRAINSTONE_REQUIRE(segment, "{} {} needs buffers in the node's shared memory", to_string(m_schedule.collective),
                     to_string(m_schedule.algorithm));
  TRAINSTONE_REQUIRE(!m_communicator->handle().ports,
                     "{} {} moves data in shared memory, which an emulated network would not slow down",
                     to_string(m_schedule.collective), to_string(m_schedule.algorithm));
  TRAINSTONE_REQUIRE(segment->neighbours() == m_schedule.neighbours,
                     "the schedule is for {} ranks on this node, the segment has {}", m_schedule.neighbours.size(),
                     segment->neighbours().size());
  for (BufferId const buffer : {BufferId::data, BufferId::scratch}) {
    if (!is_seen_by_neighbours(m_schedule, buffer)) continue;
    Memory const& memory = buffer == BufferId::data ? m_data : m_scratch;
    auto const bytes = static_cast<std::uint64_t>(memory.elements) * size_of(m_type);
    TRAINSTONE_REQUIRE(bytes == 0 || segment->contains(memory.data, bytes),
                       "{} of {} bytes lies outside of the node's shared memory", to_string(buffer), bytes);
  }
}

} // namespace trainstone
