#include "comm/execution/message_rounds.hpp"

#include "comm/execution/shared_segment.hpp"
#include "core/launch.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <span>
#include <utility>

namespace trainstone::Impl {

namespace {

int checked_count(Index elements) {
  TRAINSTONE_REQUIRE(elements >= 0 && elements <= std::numeric_limits<int>::max(),
                     "a message of {} elements is not possible", elements);
  return static_cast<int>(elements);
}

/// A message that is being delivered already is delivered to its end: until then its memory is not the caller's.
void end_of_cancelled(MPI_Request& request) noexcept {
  auto const begin = std::chrono::steady_clock::now();
  constexpr std::chrono::seconds long_enough(20);
  int is_over = 0;
  while (MPI_Test(&request, &is_over, MPI_STATUS_IGNORE) == MPI_SUCCESS && !is_over) {
    if (std::chrono::steady_clock::now() - begin < long_enough) continue;
    std::fprintf(stderr, "trainstone: a message that arrives after an error comes to no end\n");
    std::abort();
  }
}

} // namespace

MPI_Datatype mpi_type(ElementType type) {
  switch (type) {
  case ElementType::float32: return MPI_FLOAT;
  case ElementType::float64: return MPI_DOUBLE;
  case ElementType::bfloat16:
  case ElementType::float16: return MPI_UINT16_T;
  case ElementType::int32: return MPI_INT32_T;
  case ElementType::int64: return MPI_INT64_T;
  }
  return MPI_DATATYPE_NULL;
}

MessageRounds::MessageRounds(Schedule const& schedule, Topology const& topology, Settings const& settings,
                             Address const& address)
    : m_settings(settings), m_rank(schedule.rank), m_offsets{0} {
  if (settings.copies) m_staged.emplace(settings.copies, settings.staging);
  for (Round const& round : schedule.rounds) {
    if (m_staged) m_staged->begin_round();
    for (Action const action : {Action::receive, Action::send}) {
      for (Move const& move : round) {
        if (move.action != action) continue;
        add(move, topology.link(schedule.rank, move.peer), address);
      }
    }
    checked_count(std::ssize(m_messages)); // as MPI counts requests
    m_offsets.push_back(m_messages.size());
  }
  m_requests.assign(m_messages.size(), MPI_REQUEST_NULL);
  if (settings.ports) m_departures.resize(m_messages.size());
  m_given.resize(m_messages.size());
  if (!settings.persistent) return;
  for (std::size_t i = 0; i < m_messages.size(); ++i) prepare(m_messages[i], m_requests[i]);
}

MessageRounds::~MessageRounds() {
  withdraw();
  for (MPI_Request& request : m_requests) {
    if (request != MPI_REQUEST_NULL) MPI_Request_free(&request);
  }
  for (MPI_Datatype& datatype : m_datatypes) MPI_Type_free(&datatype);
}

/// One move, in as many messages as its length demands; both sides cut alike.
void MessageRounds::add(Move const& move, Link link, Address const& address) {
  Slice const& slice = move.action == Action::send ? move.from : move.to;
  Index done = 0;
  do { // a signal is one message without elements
    Index const count = std::min(m_settings.longest_message, move.size() - done);
    std::vector<Contiguous> runs;
    Index here = 0;
    do {
      Contiguous run = address(slice, done + here);
      run.elements = std::min(run.elements, count - here);
      runs.push_back(run);
      here += run.elements;
    } while (here < count);
    bool const in_one = m_staged || runs.size() == 1;
    m_messages.push_back({move.action, link, move.peer, static_cast<std::uint64_t>(count) * size_of(m_settings.type),
                          m_staged ? staged(runs) : runs.front().memory,
                          in_one ? mpi_type(m_settings.type) : in_pieces(runs), in_one ? checked_count(count) : 1});
    done += count;
  } while (done < move.size());
}

/// The place of the message's copy.
std::byte* MessageRounds::staged(std::vector<Contiguous> const& runs) {
  std::vector<StagedMessages::Piece> pieces;
  for (Contiguous const& run : runs)
    pieces.push_back({run.memory, static_cast<std::uint64_t>(run.elements) * size_of(m_settings.type)});
  return m_staged->add(pieces);
}

/// Relative to the first run.
MPI_Datatype MessageRounds::in_pieces(std::vector<Contiguous> const& runs) {
  std::vector<int> lengths;
  std::vector<MPI_Aint> places;
  for (Contiguous const& run : runs) {
    lengths.push_back(checked_count(run.elements));
    places.push_back(run.memory - runs.front().memory);
  }
  MPI_Datatype datatype = MPI_DATATYPE_NULL;
  TRAINSTONE_MPI_CHECK(MPI_Type_create_hindexed(checked_count(std::ssize(runs)), lengths.data(), places.data(),
                                                mpi_type(m_settings.type), &datatype));
  m_datatypes.push_back(datatype);
  TRAINSTONE_MPI_CHECK(MPI_Type_commit(&m_datatypes.back()));
  return m_datatypes.back();
}

void MessageRounds::prepare(Message const& message, MPI_Request& request) const {
  auto const [comm, tag] = std::pair(m_settings.comm, m_settings.tag);
  if (message.action == Action::receive) {
    TRAINSTONE_MPI_CHECK(
        MPI_Recv_init(message.memory, message.count, message.datatype, message.peer, tag, comm, &request));
  } else {
    TRAINSTONE_MPI_CHECK(
        MPI_Send_init(message.memory, message.count, message.datatype, message.peer, tag, comm, &request));
  }
}

void MessageRounds::start(Message const& message, MPI_Request& request) const {
  if (m_settings.persistent) {
    TRAINSTONE_MPI_CHECK(MPI_Start(&request));
    return;
  }
  auto const [comm, tag] = std::pair(m_settings.comm, m_settings.tag);
  if (message.action == Action::receive) {
    TRAINSTONE_MPI_CHECK(MPI_Irecv(message.memory, message.count, message.datatype, message.peer, tag, comm, &request));
  } else {
    TRAINSTONE_MPI_CHECK(MPI_Isend(message.memory, message.count, message.datatype, message.peer, tag, comm, &request));
  }
}

void MessageRounds::come_after(ExecutionSpace const& exec) {
  if (m_staged) return m_staged->come_after(exec);
  if (!m_before) m_before.emplace();
  m_before->record(exec);
}

void MessageRounds::post(std::size_t round, Traffic& traffic) {
  m_posted_begin = m_posted_end = m_ready_end = m_offsets[round];
  m_round_end = m_offsets[round + 1];
  m_ends = 0;
  m_last_in.reset();
  std::fill(m_given.begin() + static_cast<std::ptrdiff_t>(m_posted_begin),
            m_given.begin() + static_cast<std::ptrdiff_t>(m_round_end), false);
  for (std::size_t i = m_posted_begin; i < m_round_end; ++i) {
    Message const& message = m_messages[i];
    if (message.action != Action::send) continue;
    ++traffic.messages;
    traffic.bytes += message.bytes;
    if (message.link == Link::intra) continue;
    ++traffic.inter_messages;
    traffic.inter_bytes += message.bytes;
  }
  m_waits = true;
  has_begun();
}

/// Begins the round if nothing is left to wait for.
bool MessageRounds::has_begun() {
  if (!m_waits) return true;
  if (m_before && !m_before->is_done()) return false;
  m_waits = false;
  begin();
  return true;
}

void MessageRounds::begin() {
  for (std::size_t i = m_posted_begin; i < m_round_end; ++i) {
    Message const& message = m_messages[i];
    bool const sends = message.action == Action::send;
    reach_delay_point(sends ? "trainstone::comm::send" : "trainstone::comm::receive");
    if (sends && m_staged) {
      m_staged->copy_out(i);
    } else if (sends && m_settings.ports) {
      m_departures[i] = depart(message);
    } else {
      start(message, m_requests[i]);
      m_given[i] = true;
      ++m_posted_end;
    }
  }
  m_ready_end = m_staged ? m_posted_end : m_round_end;
}

/// Gives MPI the sends that are copied out and have gone through their ports; whether none is kept back. Messages to
/// one rank go through the same ports, so the one that was posted first has gone through first.
bool MessageRounds::hand_over() {
  if (m_posted_end == m_round_end) return true;
  for (; m_ready_end < m_round_end && m_staged->is_copied(m_ready_end); ++m_ready_end)
    if (m_settings.ports) m_departures[m_ready_end] = depart(m_messages[m_ready_end]);
  auto const now = std::chrono::steady_clock::now();
  for (std::size_t i = m_posted_end; i < m_ready_end; ++i) {
    if (m_given[i] || (m_settings.ports && m_departures[i] > now)) continue;
    start(m_messages[i], m_requests[i]);
    m_given[i] = true;
  }
  while (m_posted_end < m_ready_end && m_given[m_posted_end]) ++m_posted_end;
  return m_posted_end == m_round_end;
}

NetworkPorts::Time MessageRounds::depart(Message const& message) const {
  return m_settings.ports->send(std::chrono::steady_clock::now(), m_rank, message.peer, message.bytes);
}

/// What has arrived is copied in at once: a receive that has ended and is forgotten needs no withdrawal, unlike a
/// prepared one.
bool MessageRounds::test_staged(std::size_t round, bool all_given) {
  std::size_t const begin = m_offsets[round];
  m_ended.resize(m_offsets[round + 1] - begin);
  int ends = 0;
  TRAINSTONE_MPI_CHECK(
      MPI_Testsome(size(round), m_requests.data() + begin, &ends, m_ended.data(), MPI_STATUSES_IGNORE));
  if (ends == MPI_UNDEFINED) ends = 0; // MPI has none
  for (int const end : std::span(m_ended).first(static_cast<std::size_t>(ends))) {
    std::size_t const message = begin + static_cast<std::size_t>(end);
    if (m_messages[message].action != Action::receive) continue;
    m_staged->copy_in(message);
    m_last_in = message;
  }
  m_ends += static_cast<std::size_t>(ends);
  if (!all_given) let_mpi_work();
  return all_given && m_ends == m_ended.size() && (!m_last_in || m_staged->is_copied(*m_last_in));
}

bool MessageRounds::test(std::size_t round) {
  if (!has_begun()) return false;
  bool const all_given = hand_over();
  if (m_staged) {
    bool const complete = test_staged(round, all_given);
    if (complete) m_posted_begin = m_posted_end;
    return complete;
  }
  if (!all_given) {
    let_mpi_work(); // requests are tested together: a receive that is complete and forgotten could not be withdrawn
    return false;
  }
  int complete = 1;
  TRAINSTONE_MPI_CHECK(MPI_Testall(size(round), m_requests.data() + m_offsets[round], &complete, MPI_STATUSES_IGNORE));
  if (complete) m_posted_begin = m_posted_end;
  return complete != 0;
}

/// By testing: on MPICH 5.0 with UCX MPI_Waitall takes 0.6 us longer for messages that are there almost at once.
void MessageRounds::wait(std::size_t round) {
  Patience patience;
  while (!test(round)) patience.look_again();
}

void MessageRounds::withdraw() noexcept {
  bool const is_under_way = m_posted_begin < m_round_end;
  for (std::size_t i = m_posted_begin; i < m_round_end; ++i) {
    if (!m_given[i] || m_requests[i] == MPI_REQUEST_NULL) continue;
    if (m_messages[i].action == Action::receive) {
      MPI_Cancel(&m_requests[i]);
      end_of_cancelled(m_requests[i]);
    }
    if (m_requests[i] != MPI_REQUEST_NULL) MPI_Request_free(&m_requests[i]);
  }
  m_posted_begin = m_ready_end = m_round_end = m_posted_end;
  m_waits = false;
  if (m_staged && is_under_way) m_staged->finish();
}

void MessageRounds::let_mpi_work() const {
  int is_there = 0;
  TRAINSTONE_MPI_CHECK(MPI_Iprobe(MPI_ANY_SOURCE, m_settings.tag, m_settings.comm, &is_there, MPI_STATUS_IGNORE));
}

} // namespace trainstone::Impl
