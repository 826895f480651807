#include "comm/measurement/mpi_collective.hpp"

#include "comm/mpi.hpp"

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

int mpi_count(Index elements) {
  TRAINSTONE_REQUIRE_INPUT(elements <= std::numeric_limits<int>::max(),
                           "MPI's collectives take at most {} elements, not {}", std::numeric_limits<int>::max(),
                           elements);
  return static_cast<int>(elements);
}

} // namespace

std::string mpi_refusal(Problem const& problem, ElementType type) {
  if (has_servers(problem.collective)) {
    return "MPI has no collective with parameter servers";
  }
  if (adds_up(problem.collective) && is_16_bit(type)) {
    return fmt::format("MPI has no standard 16-bit floating-point type, so no {} of {}", to_string(problem.collective),
                       to_string(type));
  }
  return "";
}

MpiCollective::MpiCollective(ExecutionSpace const& exec, Communicator const& communicator, Problem problem,
                             Operation operation, ElementType type, std::byte* data, Index elements)
    : m_exec(exec),
      m_communicator(&communicator),
      m_problem(std::move(problem)),
      m_call(fmt::format("MPI's {} of {} elements", to_string(m_problem.collective), elements)),
      m_operation(operation),
      m_type(type),
      m_data(data) {
  std::string const reason = mpi_refusal(m_problem, type);
  TRAINSTONE_REQUIRE_INPUT(reason.empty(), "{}", reason);
  TRAINSTONE_REQUIRE(m_problem.ranks() == communicator.size(), "the problem is for {} ranks, there are {}",
                     m_problem.ranks(), communicator.size());
  TRAINSTONE_REQUIRE(elements == m_problem.elements(), "the problem is for {} elements, the data has {}",
                     m_problem.elements(), elements);
  mpi_count(elements); // so the sum of counts cannot overflow
  for (Rank rank = 0; rank < m_problem.ranks(); ++rank) {
    Range const range = m_problem.collective == Collective::all_to_all
                            ? all_to_all_range(m_problem.partition, communicator.rank(), rank)
                            : m_problem.partition.range(rank);
    m_counts.push_back(mpi_count(range.size()));
    m_offsets.push_back(mpi_count(range.begin));
  }
  m_equal_blocks = std::ranges::count(m_counts, m_counts.front()) == m_problem.ranks();
}

void MpiCollective::run() {
  m_communicator->announce_and_compare(m_call);
  m_exec.fence("trainstone::comm::mpi_collective: MPI touches the data");
  MPI_Comm const comm = m_communicator->handle().comm;
  MPI_Datatype const type = Impl::mpi_type(m_type);
  int const count = static_cast<int>(m_problem.elements());
  switch (m_problem.collective) {
  case Collective::all_reduce:
    TRAINSTONE_MPI_CHECK(MPI_Allreduce(MPI_IN_PLACE, m_data, count, type, mpi_operation(m_operation), comm));
    break;
  case Collective::reduce_scatter: reduce_scatter(); break;
  case Collective::all_gather: all_gather(); break;
  case Collective::broadcast: TRAINSTONE_MPI_CHECK(MPI_Bcast(m_data, count, type, m_problem.root, comm)); break;
  case Collective::reduce: reduce(); break;
  case Collective::gather: gather(); break;
  case Collective::scatter: scatter(); break;
  case Collective::all_to_all: all_to_all(); break;
  case Collective::barrier: TRAINSTONE_MPI_CHECK(MPI_Barrier(comm)); break;
  case Collective::server_push:
  case Collective::server_pull: break; // refused by the constructor
  }
}

std::byte* MpiCollective::own_block() const {
  return m_data + static_cast<std::size_t>(m_problem.partition.range(m_communicator->rank()).begin) * size_of(m_type);
}

/// In place MPI puts every rank's block at the beginning of its buffer: moved from there to where the block belongs.
/// Not in place where blocks differ: there MPICH 5.0.2 copies between ranges that overlap, and ends the program.
void MpiCollective::reduce_scatter() {
  MPI_Comm const comm = m_communicator->handle().comm;
  MPI_Datatype const type = Impl::mpi_type(m_type);
  MPI_Op const operation = mpi_operation(m_operation);
  auto const bytes = static_cast<std::size_t>(m_problem.partition.size(m_communicator->rank())) * size_of(m_type);
  if (m_equal_blocks) {
    TRAINSTONE_MPI_CHECK(MPI_Reduce_scatter_block(MPI_IN_PLACE, m_data, m_counts.front(), type, operation, comm));
    if (bytes > 0) std::memmove(own_block(), m_data, bytes);
    return;
  }
  m_result.resize(bytes);
  TRAINSTONE_MPI_CHECK(MPI_Reduce_scatter(m_data, m_result.data(), m_counts.data(), type, operation, comm));
  if (bytes > 0) std::memcpy(own_block(), m_result.data(), bytes);
}

void MpiCollective::all_gather() {
  MPI_Comm const comm = m_communicator->handle().comm;
  MPI_Datatype const type = Impl::mpi_type(m_type);
  if (m_equal_blocks) {
    TRAINSTONE_MPI_CHECK(MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, m_data, m_counts.front(), type, comm));
  } else {
    TRAINSTONE_MPI_CHECK(
        MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, m_data, m_counts.data(), m_offsets.data(), type, comm));
  }
}

void MpiCollective::reduce() {
  void const* const from = is_root() ? MPI_IN_PLACE : m_data;
  TRAINSTONE_MPI_CHECK(MPI_Reduce(from, is_root() ? m_data : nullptr, static_cast<int>(m_problem.elements()),
                                  Impl::mpi_type(m_type), mpi_operation(m_operation), m_problem.root,
                                  m_communicator->handle().comm));
}

void MpiCollective::gather() {
  MPI_Comm const comm = m_communicator->handle().comm;
  MPI_Datatype const type = Impl::mpi_type(m_type);
  int const count = m_counts[static_cast<std::size_t>(m_communicator->rank())];
  void const* const from = is_root() ? MPI_IN_PLACE : own_block();
  if (m_equal_blocks) {
    TRAINSTONE_MPI_CHECK(MPI_Gather(from, count, type, m_data, count, type, m_problem.root, comm));
  } else {
    TRAINSTONE_MPI_CHECK(
        MPI_Gatherv(from, count, type, m_data, m_counts.data(), m_offsets.data(), type, m_problem.root, comm));
  }
}

void MpiCollective::scatter() {
  MPI_Comm const comm = m_communicator->handle().comm;
  MPI_Datatype const type = Impl::mpi_type(m_type);
  int const count = m_counts[static_cast<std::size_t>(m_communicator->rank())];
  void* const to = is_root() ? MPI_IN_PLACE : own_block();
  if (m_equal_blocks) {
    TRAINSTONE_MPI_CHECK(MPI_Scatter(m_data, count, type, to, count, type, m_problem.root, comm));
  } else {
    TRAINSTONE_MPI_CHECK(
        MPI_Scatterv(m_data, m_counts.data(), m_offsets.data(), type, to, count, type, m_problem.root, comm));
  }
}

void MpiCollective::all_to_all() {
  MPI_Comm const comm = m_communicator->handle().comm;
  MPI_Datatype const type = Impl::mpi_type(m_type);
  if (m_equal_blocks) {
    TRAINSTONE_MPI_CHECK(MPI_Alltoall(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, m_data, m_counts.front(), type, comm));
  } else {
    TRAINSTONE_MPI_CHECK(MPI_Alltoallv(MPI_IN_PLACE, nullptr, nullptr, MPI_DATATYPE_NULL, m_data, m_counts.data(),
                                       m_offsets.data(), type, comm));
  }
}

} // namespace trainstone
