#include "comm/measurement/mpi_collective.hpp"

#include "comm/execution/buffers.hpp"
#include "comm/execution/mpi.hpp"
#include "comm/schedule/expected_results.hpp"
#include "core/launch.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

namespace trainstone {

namespace {

bool is_16_bit(ElementType type) { return size_of(type) == 2; }

MPI_Op mpi_operation(Operation operation) {
  switch (operation) {
  case Operation::sum: return MPI_SUM;
  case Operation::max: return MPI_MAX;
  case Operation::min: return MPI_MIN;
  }
  return MPI_OP_NULL;
}

constexpr Index most_elements = std::numeric_limits<int>::max();

int mpi_count(Index elements) {
  TRAINSTONE_REQUIRE(elements <= most_elements, "{} elements for MPI, at most {}", elements, most_elements);
  return static_cast<int>(elements);
}

/// Whether the rank has its result from the start, and MPI writes nothing there.
bool only_sends(Problem const& problem, Rank rank) {
  bool const from_root = problem.collective == Collective::broadcast || problem.collective == Collective::scatter ||
                         problem.collective == Collective::send;
  return from_root && rank == problem.root;
}

} // namespace

bool has_equal_blocks(Problem const& problem) {
  Partition const& partition = problem.partition;
  for (Rank rank = 1; rank < problem.ranks(); ++rank)
    if (partition.size(rank) != partition.size(0)) return false;
  return true;
}

std::string mpi_refusal(Problem const& problem, ElementType type) {
  if (has_servers(problem.collective)) {
    return "MPI has no collective with parameter servers";
  }
  if (adds_up(problem.collective) && is_16_bit(type)) {
    return fmt::format("MPI has no standard 16-bit floating-point type, so no {} of {}", to_string(problem.collective),
                       to_string(type));
  }
  if (problem.elements() > most_elements)
    return fmt::format("MPI's collectives count elements in 31 bits, so no {} of more than {}",
                       to_string(problem.collective), most_elements);
  return "";
}

std::string_view to_string(MpiForm form) { return form == MpiForm::in_place ? "in place" : "two buffers"; }

std::vector<MpiForm> mpi_forms(Problem const& problem) {
  switch (problem.collective) {
  case Collective::broadcast:
  case Collective::send_receive: // its data are two buffers
  case Collective::send:
  case Collective::copy:
  case Collective::signal_wait:
  case Collective::barrier: return {MpiForm::in_place};
  case Collective::reduce_scatter:
    // Not in place where blocks differ: there MPICH 5.0.2 copies between ranges that overlap, and ends the program.
    if (!has_equal_blocks(problem)) return {MpiForm::two_buffers};
    [[fallthrough]];
  default: return {MpiForm::in_place, MpiForm::two_buffers};
  }
}

Index mpi_scratch_elements(Problem const& problem, Rank rank, MpiForm form) {
  if (form == MpiForm::in_place) return 0;
  bool const is_root = rank == problem.root;
  switch (problem.collective) {
  case Collective::reduce_scatter: return problem.partition.size(rank);
  case Collective::scatter: return is_root ? problem.partition.size(rank) : 0;
  case Collective::reduce:
  case Collective::gather: return is_root ? problem.elements() : 0;
  default: return problem.elements();
  }
}

std::uint64_t mpi_staging_bytes(MessageBuffers buffers, Problem const& problem, Rank rank, std::size_t element_bytes,
                                MpiForm form) {
  if (buffers != MessageBuffers::staged) return 0;
  return staging_footprint(static_cast<std::uint64_t>(problem.elements()) * element_bytes) +
         staging_footprint(static_cast<std::uint64_t>(mpi_scratch_elements(problem, rank, form)) * element_bytes);
}

MpiCollective::MpiCollective(ExecutionSpace const& exec, Communicator const& communicator, Problem problem,
                             Operation operation, ElementType type, Memory data, Memory scratch,
                             std::span<std::byte> staging, MpiForm form)
    : m_exec(exec),
      m_communicator(&communicator),
      m_problem(std::move(problem)),
      m_call(fmt::format("MPI's {} of {} elements", to_string(m_problem.collective), data.elements)),
      m_operation(operation),
      m_type(type),
      m_buffers(communicator.buffers()),
      m_form(form),
      m_equal_blocks(has_equal_blocks(m_problem)),
      m_data(data.data),
      m_given(data.data),
      m_given_result(scratch.data) {
  std::string const reason = mpi_refusal(m_problem, type);
  TRAINSTONE_REQUIRE_INPUT(reason.empty(), "{}", reason);
  std::vector<MpiForm> const forms = mpi_forms(m_problem);
  TRAINSTONE_REQUIRE(std::ranges::find(forms, form) != forms.end(), "{} has no form with {}", m_call.text(),
                     to_string(form));
  require_memory(data, scratch, staging);
  m_read = Impl::initially_held(m_problem, communicator.rank());
  m_held = Impl::finally_held(m_problem, communicator.rank());
  m_written = only_sends(m_problem, communicator.rank()) ? Range{0, 0} : m_held;
  mpi_count(data.elements); // so the sum of counts cannot overflow
  for (Rank rank = 0; rank < m_problem.ranks(); ++rank) {
    Range const range = m_problem.collective == Collective::all_to_all
                            ? all_to_all_range(m_problem.partition, communicator.rank(), rank)
                            : m_problem.partition.range(rank);
    m_counts.push_back(mpi_count(range.size()));
    m_offsets.push_back(mpi_count(range.begin));
  }
  if (m_buffers == MessageBuffers::staged) {
    m_given = staging.data();
    m_given_result = staging.data() + staging_footprint(bytes(data.elements));
  }
  bool const is_apart = mpi_scratch_elements(m_problem, communicator.rank(), form) > 0;
  bool const is_at_begin = // of the buffer that MPI writes; else in its place among all elements
      m_problem.collective == Collective::reduce_scatter || (m_problem.collective == Collective::scatter && is_apart);
  m_result = (is_apart ? m_given_result : m_given) + (is_at_begin ? 0 : bytes(m_written.begin));
}

void MpiCollective::require_memory(Memory data, Memory scratch, std::span<std::byte> staging) const {
  Rank const rank = m_communicator->rank();
  TRAINSTONE_REQUIRE(m_problem.ranks() == m_communicator->size(), "the problem is for {} ranks, there are {}",
                     m_problem.ranks(), m_communicator->size());
  TRAINSTONE_REQUIRE(data.elements == m_problem.elements(), "the problem is for {} elements, the data has {}",
                     m_problem.elements(), data.elements);
  Index const needed = mpi_scratch_elements(m_problem, rank, m_form);
  TRAINSTONE_REQUIRE(scratch.elements >= needed, "{} needs {} elements of scratch, there are {}", m_call.text(), needed,
                     scratch.elements);
  std::uint64_t const copies = mpi_staging_bytes(m_buffers, m_problem, rank, size_of(m_type), m_form);
  TRAINSTONE_REQUIRE(staging.size() >= copies, "{} needs {} bytes of staging, there are {}", m_call.text(), copies,
                     staging.size());
  TRAINSTONE_REQUIRE(m_buffers != MessageBuffers::host || host_reaches_memory,
                     "MPI is given the host's memory on this communicator, the data of {} lies in {}", m_call.text(),
                     MemorySpace::name());
}

void MpiCollective::start_call() {
  m_communicator->announce_and_compare(m_call);
  if (m_buffers == MessageBuffers::staged && !m_read.empty())
    copy_to_pinned(m_exec, m_data + bytes(m_read.begin), {m_given + bytes(m_read.begin), bytes(m_read.size())});
  static std::string const label = "trainstone::comm::mpi_collective: MPI touches the data"; // allocates once
  wait_for_kernels(m_exec, label);
  call();
}

void MpiCollective::run() {
  start_call();
  bring_result();
}

void MpiCollective::run_as_users_do() {
  start_call();
  if (m_buffers == MessageBuffers::staged) bring_result();
}

std::span<std::byte const> MpiCollective::users_result() const {
  bool const in_data = m_buffers == MessageBuffers::staged || m_written.empty();
  return {in_data ? m_data + bytes(m_held.begin) : m_result, bytes(m_held.size())};
}

void MpiCollective::call() {
  MPI_Comm const comm = m_communicator->handle().comm;
  MPI_Datatype const type = Impl::mpi_type(m_type);
  int const count = static_cast<int>(m_problem.elements());
  Rank const rank = m_communicator->rank();
  switch (m_problem.collective) {
  case Collective::all_reduce:
    TRAINSTONE_MPI_CHECK(MPI_Allreduce(is_in_place() ? MPI_IN_PLACE : m_given, is_in_place() ? m_given : m_given_result,
                                       count, type, mpi_operation(m_operation), comm));
    break;
  case Collective::reduce_scatter: reduce_scatter(); break;
  case Collective::all_gather: all_gather(); break;
  case Collective::broadcast: TRAINSTONE_MPI_CHECK(MPI_Bcast(m_given, count, type, m_problem.root, comm)); break;
  case Collective::reduce: reduce(); break;
  case Collective::gather: gather(); break;
  case Collective::scatter: scatter(); break;
  case Collective::all_to_all: all_to_all(); break;
  case Collective::barrier: TRAINSTONE_MPI_CHECK(MPI_Barrier(comm)); break;
  case Collective::server_push:
  case Collective::server_pull: break; // refused by the constructor
  case Collective::send: send(); break;
  case Collective::send_receive:
  case Collective::copy: send_receive(); break;
  case Collective::signal_wait: exchange({}, m_problem.destination_of(rank), {}, m_problem.source_of(rank)); break;
  }
}

/// From where MPI has left it to where problem.hpp has it. Blocks that are moved do not overlap: the first one stays.
void MpiCollective::bring_result() const {
  std::size_t const size = bytes(m_written.size());
  std::byte* const to = m_data + bytes(m_written.begin);
  if (size == 0 || m_result == to) return;
  switch (m_buffers) {
  case MessageBuffers::host: std::memcpy(to, m_result, size); return;
  case MessageBuffers::staged: copy_from_pinned(m_exec, {m_result, size}, to); break;
  case MessageBuffers::device:
    Kokkos::deep_copy(m_exec, Vector<std::byte>(to, size), Vector<std::byte const>(m_result, size));
    break;
  }
  m_exec.fence("trainstone::comm::mpi_collective: the data is complete");
}

/// In place MPI puts every rank's block at the beginning of its buffer.
void MpiCollective::reduce_scatter() {
  MPI_Comm const comm = m_communicator->handle().comm;
  MPI_Datatype const type = Impl::mpi_type(m_type);
  MPI_Op const operation = mpi_operation(m_operation);
  if (m_equal_blocks) {
    TRAINSTONE_MPI_CHECK(MPI_Reduce_scatter_block(is_in_place() ? MPI_IN_PLACE : m_given,
                                                  is_in_place() ? m_given : m_given_result, m_counts.front(), type,
                                                  operation, comm));
  } else {
    TRAINSTONE_MPI_CHECK(MPI_Reduce_scatter(m_given, m_given_result, m_counts.data(), type, operation, comm));
  }
}

void MpiCollective::all_gather() {
  MPI_Comm const comm = m_communicator->handle().comm;
  MPI_Datatype const type = Impl::mpi_type(m_type);
  void const* const from = is_in_place() ? MPI_IN_PLACE : own_block();
  void* const to = is_in_place() ? m_given : m_given_result;
  int const count = own_count();
  if (m_equal_blocks) {
    TRAINSTONE_MPI_CHECK(MPI_Allgather(from, count, type, to, count, type, comm));
  } else {
    TRAINSTONE_MPI_CHECK(MPI_Allgatherv(from, count, type, to, m_counts.data(), m_offsets.data(), type, comm));
  }
}

void MpiCollective::reduce() {
  bool const root_in_place = is_root() && is_in_place();
  std::byte* const to = is_in_place() ? m_given : m_given_result;
  TRAINSTONE_MPI_CHECK(MPI_Reduce(root_in_place ? MPI_IN_PLACE : m_given, is_root() ? to : nullptr,
                                  static_cast<int>(m_problem.elements()), Impl::mpi_type(m_type),
                                  mpi_operation(m_operation), m_problem.root, m_communicator->handle().comm));
}

void MpiCollective::gather() {
  MPI_Comm const comm = m_communicator->handle().comm;
  MPI_Datatype const type = Impl::mpi_type(m_type);
  int const count = own_count();
  void const* const from = is_root() && is_in_place() ? MPI_IN_PLACE : own_block();
  void* const to = is_in_place() ? m_given : m_given_result;
  if (m_equal_blocks) {
    TRAINSTONE_MPI_CHECK(MPI_Gather(from, count, type, to, count, type, m_problem.root, comm));
  } else {
    TRAINSTONE_MPI_CHECK(
        MPI_Gatherv(from, count, type, to, m_counts.data(), m_offsets.data(), type, m_problem.root, comm));
  }
}

/// Where the root keeps its block apart, the other ranks' buffers are what they are in place.
void MpiCollective::scatter() {
  MPI_Comm const comm = m_communicator->handle().comm;
  MPI_Datatype const type = Impl::mpi_type(m_type);
  int const count = own_count();
  void* const root_to = is_in_place() ? MPI_IN_PLACE : static_cast<void*>(m_given_result);
  void* const to = is_root() ? root_to : own_block();
  if (m_equal_blocks) {
    TRAINSTONE_MPI_CHECK(MPI_Scatter(m_given, count, type, to, count, type, m_problem.root, comm));
  } else {
    TRAINSTONE_MPI_CHECK(
        MPI_Scatterv(m_given, m_counts.data(), m_offsets.data(), type, to, count, type, m_problem.root, comm));
  }
}

void MpiCollective::exchange(Range const& sent, Rank to, Range const& received, Rank from) {
  MPI_Datatype const type = Impl::mpi_type(m_type);
  TRAINSTONE_MPI_CHECK(MPI_Sendrecv(m_given + bytes(sent.begin), static_cast<int>(sent.size()), type, to, 0,
                                    m_given + bytes(received.begin), static_cast<int>(received.size()), type, from, 0,
                                    m_communicator->handle().comm, MPI_STATUS_IGNORE));
}

void MpiCollective::send_receive() {
  Rank const rank = m_communicator->rank();
  exchange(sent_half(m_problem), m_problem.destination_of(rank), received_half(m_problem), m_problem.source_of(rank));
}

/// One direction of the same call. A rank that is its own partner has the data already.
void MpiCollective::send() {
  Rank const rank = m_communicator->rank(), destination = m_problem.destination_of(m_problem.root);
  if (destination == m_problem.root) return;
  Range const all{0, m_problem.elements()}, nothing;
  if (is_root()) exchange(all, destination, nothing, MPI_PROC_NULL);
  if (rank == destination) exchange(nothing, MPI_PROC_NULL, all, m_problem.root);
}

void MpiCollective::all_to_all() {
  MPI_Comm const comm = m_communicator->handle().comm;
  MPI_Datatype const type = Impl::mpi_type(m_type);
  void const* const from = is_in_place() ? MPI_IN_PLACE : m_given;
  void* const to = is_in_place() ? m_given : m_given_result;
  if (m_equal_blocks) {
    TRAINSTONE_MPI_CHECK(MPI_Alltoall(from, m_counts.front(), type, to, m_counts.front(), type, comm));
  } else {
    TRAINSTONE_MPI_CHECK(MPI_Alltoallv(from, m_counts.data(), m_offsets.data(), type, to, m_counts.data(),
                                       m_offsets.data(), type, comm));
  }
}

} // namespace trainstone
