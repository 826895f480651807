#include "comm/execution.hpp"

#include "comm/mpi.hpp"
#include "comm/reduce.hpp"
#include "core/launch.hpp"

#include <algorithm>
#include <limits>

namespace trainstone {

namespace {

MPI_Datatype mpi_type(ElementType type) {
  switch (type) {
  case ElementType::float32: return MPI_FLOAT;
  case ElementType::float64: return MPI_DOUBLE;
  case ElementType::int32: return MPI_INT32_T;
  case ElementType::int64: return MPI_INT64_T;
  }
  return MPI_DATATYPE_NULL;
}

int checked_count(Index elements) {
  TRAINSTONE_REQUIRE(elements > 0 && elements <= std::numeric_limits<int>::max(),
                     "a message of {} elements is not possible", elements);
  return static_cast<int>(elements);
}

void require_host_accessible() {
  constexpr bool accessible = Kokkos::SpaceAccessibility<Kokkos::HostSpace, MemorySpace>::accessible;
  TRAINSTONE_REQUIRE(accessible, "collectives work on host memory only; this build's memory space is {}",
                     MemorySpace::name());
}

} // namespace

Execution::Execution(ExecutionSpace const& exec, Communicator& communicator, Schedule schedule, Operation operation,
                     ElementType type, Memory data, Memory scratch, ExecutionOptions const& options)
    : m_exec(exec),
      m_communicator(&communicator),
      m_schedule(std::move(schedule)),
      m_operation(operation),
      m_type(type),
      m_data(data),
      m_scratch(scratch),
      m_options(options),
      m_requests(std::make_unique<Impl::Requests>()),
      m_round(m_schedule.rounds.size()) {
  require_host_accessible();
  TRAINSTONE_REQUIRE(m_schedule.rank == communicator.rank() && m_schedule.ranks == communicator.size(),
                     "the schedule is for rank {} of {}, this is rank {} of {}", m_schedule.rank, m_schedule.ranks,
                     communicator.rank(), communicator.size());
  TRAINSTONE_REQUIRE(data.elements == m_schedule.elements, "the schedule is for {} elements, the data has {}",
                     m_schedule.elements, data.elements);
  TRAINSTONE_REQUIRE(scratch.elements >= m_schedule.scratch_elements,
                     "the schedule needs {} elements of scratch, there are {}", m_schedule.scratch_elements,
                     scratch.elements);
  TRAINSTONE_REQUIRE(options.longest_message >= 1 && options.longest_message <= longest_mpi_message,
                     "the longest message must have 1 to {} elements, not {}", longest_mpi_message,
                     options.longest_message);
}

Execution::Execution(Execution&&) noexcept = default;
Execution::~Execution() = default;

void Execution::start() {
  TRAINSTONE_REQUIRE(!in_flight(), "{} started while in round {}", to_string(m_schedule.collective), m_round);
  m_tag = m_communicator->next_tag();
  m_round = 0;
  m_kernels_enqueued = true; // by the caller, perhaps
  if (in_flight()) post_round();
}

bool Execution::progress() { return advance(Wait::no); }

void Execution::wait() { advance(Wait::yes); }

/// Goes on until the end, or, not waiting, until messages are missing.
bool Execution::advance(Wait wait) {
  while (in_flight()) {
    if (!round_received(wait)) return false;
    enqueue_local_moves();
    ++m_round;
    if (in_flight()) post_round();
  }
  return true;
}

void Execution::post_round() {
  PhaseTimer const timer(Phase::communication);
  Round const& round = m_schedule.rounds[m_round];
  if (m_kernels_enqueued && std::ranges::any_of(round, &Move::is_message)) {
    m_exec.fence("trainstone::comm::execute: MPI touches the buffers");
    m_kernels_enqueued = false;
  }
  for (Action const action : {Action::receive, Action::send}) {
    for (Move const& move : round) {
      if (move.action == action) post_message(move);
    }
  }
}

/// One move, in as many messages as its length demands; both sides cut alike.
void Execution::post_message(Move const& move) {
  MPI_Comm const comm = m_communicator->handle().comm;
  Traffic& traffic = comm_counters().at(m_options.purpose, m_schedule.collective, m_schedule.algorithm);
  for (Index done = 0; done < move.size(); done += m_options.longest_message) {
    int const count = checked_count(std::min(m_options.longest_message, move.size() - done));
    std::size_t const offset = static_cast<std::size_t>(done) * size_of(m_type);
    MPI_Request& request = m_requests->active.emplace_back(MPI_REQUEST_NULL);
    if (move.action == Action::receive) {
      TRAINSTONE_MPI_CHECK(
          MPI_Irecv(address(move.to) + offset, count, mpi_type(m_type), move.peer, m_tag, comm, &request));
    } else {
      TRAINSTONE_MPI_CHECK(
          MPI_Isend(address(move.from) + offset, count, mpi_type(m_type), move.peer, m_tag, comm, &request));
      ++traffic.messages;
      traffic.bytes += static_cast<std::uint64_t>(count) * size_of(m_type);
    }
  }
}

bool Execution::round_received(Wait wait) {
  PhaseTimer const timer(Phase::communication);
  auto& active = m_requests->active;
  TRAINSTONE_REQUIRE(active.size() <= std::size_t{std::numeric_limits<int>::max()}, "{} messages in one round",
                     active.size());
  int const count = static_cast<int>(active.size());
  int complete = 1;
  if (wait == Wait::yes) {
    TRAINSTONE_MPI_CHECK(MPI_Waitall(count, active.data(), MPI_STATUSES_IGNORE));
  } else {
    TRAINSTONE_MPI_CHECK(MPI_Testall(count, active.data(), &complete, MPI_STATUSES_IGNORE));
  }
  if (complete) active.clear();
  return complete != 0;
}

void Execution::enqueue_local_moves() {
  for (Move const& move : m_schedule.rounds[m_round]) {
    if (move.is_message()) continue;
    switch (m_type) {
    case ElementType::float32: enqueue_local_move<float>(move); break;
    case ElementType::float64: enqueue_local_move<double>(move); break;
    case ElementType::int32: enqueue_local_move<std::int32_t>(move); break;
    case ElementType::int64: enqueue_local_move<std::int64_t>(move); break;
    }
    m_kernels_enqueued = true;
  }
}

template <class T>
void Execution::enqueue_local_move(Move const& move) {
  auto const size = static_cast<std::size_t>(move.size());
  Vector<T const> const from(reinterpret_cast<T const*>(address(move.from)), size);
  Vector<T> const to(reinterpret_cast<T*>(address(move.to)), size);
  if (move.action == Action::copy) return copy<T>(m_exec, from, to);
  reduce<T>(m_exec, m_operation, from, to);
  comm_counters().at(m_options.purpose, m_schedule.collective, m_schedule.algorithm).reduced += size;
}

std::byte* Execution::address(Slice const& slice) const {
  Memory const& memory = slice.buffer == BufferId::data ? m_data : m_scratch;
  TRAINSTONE_REQUIRE(slice.range.begin >= 0 && slice.range.end <= memory.elements,
                     "{} [{}, {}) is outside of {} elements", to_string(slice.buffer), slice.range.begin,
                     slice.range.end, memory.elements);
  return memory.data + static_cast<std::size_t>(slice.range.begin) * size_of(m_type);
}

} // namespace trainstone
