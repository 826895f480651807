#include "comm/execution/execution.hpp"

#include "comm/execution/buffers.hpp"
#include "comm/execution/local_moves.hpp"
#include "comm/execution/message_rounds.hpp"
#include "comm/execution/order_check.hpp"
#include "comm/execution/reduce.hpp"
#include "core/launch.hpp"
#include "core/types.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory_resource>
#include <string>
#include <utility>
#include <vector>

namespace trainstone {

namespace {

/// As messages of these buffers are sent.
ExecutionOptions adapted(ExecutionOptions options, MessageBuffers buffers, ElementType type) {
  if (buffers != MessageBuffers::staged) return options;
  options.longest_message = std::min(options.longest_message, longest_message(buffers, size_of(type)));
  options.persistent = false; // what ends one by one can be forgotten one by one
  return options;
}

/// "all_reduce ring sum float32 of 1000 elements, ...": all that ranks must agree on.
CollectiveCall describe(Schedule const& schedule, Operation operation, ElementType type, Index longest_message,
                        int tag) {
  auto const& [root, servers, segment, placement] = schedule.agreement;
  std::string text = fmt::format("{} {}", to_string(schedule.collective), to_string(schedule.algorithm));
  if (adds_up(schedule.collective)) text += fmt::format(" {}", to_string(operation));
  text += fmt::format(" {} of {} elements", to_string(type), schedule.elements);
  if (has_root(schedule.collective)) text += fmt::format(", root {}", root);
  if (has_servers(schedule.collective)) text += fmt::format(", {} servers", servers);
  if (segment > 0) text += fmt::format(", segments of {}", segment);
  if (longest_message < longest_mpi_message) text += fmt::format(", messages of at most {}", longest_message);
  return CollectiveCall(text + fmt::format(", placement {:016x}, tag {}", placement.value(), tag));
}

/// In place of an offset: of a buffer at which nobody else may look.
constexpr std::uint64_t not_shared = ~std::uint64_t{0};

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
      m_buffers(options.on_host ? MessageBuffers::host : communicator.buffers()),
      m_options(adapted(options, m_buffers, type)),
      m_tag(options.tag ? options.tag : std::make_shared<SharedTag>(communicator.take_tag())),
      m_call(describe(m_schedule, operation, type, m_options.longest_message, m_tag->value())),
      m_round(m_schedule.rounds.size()) {
  require_extents();
  if (m_schedule.needs_shared_memory()) require_shared_buffers();
  m_messages = std::make_unique<Impl::MessageRounds>(
      m_schedule, communicator.topology(),
      Impl::MessageRounds::Settings{.comm = communicator.handle().comm,
                                    .tag = m_tag->value(),
                                    .type = type,
                                    .longest_message = m_options.longest_message,
                                    .persistent = m_options.persistent,
                                    .ports = communicator.handle().ports,
                                    .copies =
                                        m_buffers == MessageBuffers::staged ? communicator.handle().copies : nullptr,
                                    .staging = m_options.staging},
      [this](Slice const& slice, Index element) {
        return Impl::MessageRounds::Contiguous{
            address(slice, element),
            slice.buffer == BufferId::data
                ? m_options.pieces.contiguous(slice.range.begin + element, slice.range.size() - element)
                : slice.range.size() - element};
      });
}

Execution::Execution(Execution&&) noexcept = default;

Execution::~Execution() {
  if (!in_flight()) return;
  bool const after_an_error = m_communicator->handle().failed || std::uncaught_exceptions() > 0;
  give_up();
  if (after_an_error) return; // the members withdraw what they have posted
  std::fprintf(stderr, "trainstone: rank %d: %s was destroyed while in flight\n", m_schedule.rank,
               m_call.text().c_str());
  std::abort();
}

/// Others may never come: nothing that is shared with them can be used again.
void Execution::give_up() {
  m_failed = true;
  m_communicator->give_up();
  if (m_schedule.needs_shared_memory()) m_options.segment->give_up();
}

/// What has failed is over.
template <class Work>
auto Execution::or_end(Work const& work) {
  TRAINSTONE_REQUIRE(!m_failed, "{} has failed before", m_call.text());
  try {
    return work();
  } catch (...) {
    give_up();
    m_flight.end();
    m_comparison.reset();
    m_messages->withdraw();
    m_round = m_schedule.rounds.size();
    throw;
  }
}

std::string Execution::name() const {
  return fmt::format("{} {}, {} bytes", to_string(m_schedule.collective), to_string(m_schedule.algorithm),
                     static_cast<std::uint64_t>(m_schedule.elements) * size_of(m_type));
}

void Execution::start(std::optional<InstanceEvent> const& ready) {
  PhaseTimer const timer(Phase::communication);
  TRAINSTONE_REQUIRE(!in_flight(), "{} started while in round {}", to_string(m_schedule.collective), m_round);
  if (m_schedule.needs_shared_memory()) m_ticket = m_options.segment->next_ticket();
  m_ready = ready;
  if (m_options.caller && !ready) m_ready.emplace(*m_options.caller);
  or_end([this] {
    if (!m_options.any_order) m_comparison = m_communicator->announce(m_call);
    if (!m_schedule.rounds.empty()) m_flight = Span(Lane::collective, [this] { return name(); });
    reach_delay_point("trainstone::comm::start");
    m_barriers = 0;
    m_round = 0;
    m_begun = false;
    m_turn = m_tag->take_turn();
    m_kernels_enqueued = !m_options.on_host; // by the caller, perhaps
    if (!m_comparison) may_begin(Wait::no);
    end_turn_if_given();
  });
}

/// Later executions with the same tag may then begin.
void Execution::end_turn_if_given() {
  bool const given = !in_flight() || (m_begun && m_messages->all_given());
  if (m_turn && given) m_tag->end_turn();
  if (given) m_turn.reset();
}

bool Execution::progress() {
  return or_end([this] {
    bool const has_ended = advance(Wait::no);
    end_turn_if_given();
    return has_ended;
  });
}

void Execution::wait() {
  Span const waiting(Lane::wait, [this] { return name(); });
  or_end([this] { return advance(Wait::yes); });
  end_turn_if_given();
}

void Execution::run() {
  PhaseTimer const timer(Phase::communication); // one for both: reading the clock is much of what few bytes take
  start();
  wait();
}

/// Goes on until the end, or, not waiting, until others are missing.
bool Execution::advance(Wait wait) {
  PhaseTimer const timer(Phase::communication);
  if (in_flight() && !m_begun && !may_begin(wait)) return false;
  while (in_flight()) {
    if (!round_complete(wait)) return false;
    Round const& round = m_schedule.rounds[m_round];
    enqueue_moves(Impl::early_moves(round), round.size());
    ++m_round;
    if (in_flight())
      begin_round();
    else
      end();
  }
  m_flight.end();
  return true;
}

/// Whether all ranks are known to call the same, if that is checked, what this comes after has ended, and neighbours
/// have done with what had this ticket's place. Then the first round is posted. It is the host that waits for the
/// caller's kernels: an instance that did would hold up what other executions have enqueued there.
bool Execution::may_begin(Wait wait) {
  if (m_comparison) {
    if (wait == Wait::no && !m_comparison->test()) return false;
    if (wait == Wait::yes) m_comparison->wait();
    m_comparison.reset();
  }
  if (m_ready && !until(wait, [this] { return m_ready->is_done(); })) return false;
  bool const is_turn = !m_turn || m_tag->is_turn(*m_turn);
  TRAINSTONE_REQUIRE(is_turn || wait == Wait::no, "{} waits for an earlier one with its tag, which nobody advances",
                     m_call.text());
  if (!is_turn) return false;
  auto const is_free = [this] { return m_options.segment->is_free(m_ticket); };
  if (m_schedule.needs_shared_memory() && !until(wait, is_free)) return false;
  m_begun = true;
  if (in_flight()) begin_round();
  return true;
}

void Execution::end() {
  if (m_schedule.needs_shared_memory()) m_options.segment->close_ticket(m_ticket);
  if (m_options.caller) order_after(m_exec, *m_options.caller);
}

void Execution::begin_round() {
  Round const& round = m_schedule.rounds[m_round];
  if (round.front().action == Action::node_barrier) return arrive_at_barrier();
  if (!m_messages->empty(m_round)) {
    if (std::exchange(m_kernels_enqueued, false)) m_messages->come_after(m_exec);
    m_messages->post(m_round, comm_counters().at(m_options.purpose, m_schedule.collective, m_schedule.algorithm));
  }
  enqueue_moves(0, Impl::early_moves(round));
}

void Execution::arrive_at_barrier() {
  static std::string const label = "trainstone::comm::execute: neighbours touch the buffers"; // allocates once
  if (std::exchange(m_kernels_enqueued, false)) wait_for_kernels(m_exec, label);
  reach_delay_point("trainstone::comm::barrier");
  SharedSegment& segment = *m_options.segment;
  std::byte const* const begin = segment.bytes().data();
  auto const offset = [&](Memory const& memory) {
    auto const bytes = static_cast<std::uint64_t>(memory.elements) * size_of(m_type);
    bool const shared = memory.elements > 0 && segment.contains(memory.data, bytes);
    return shared ? static_cast<std::uint64_t>(memory.data - begin) : not_shared;
  };
  segment.arrive(m_ticket, m_barriers, offset(m_data), offset(m_scratch));
}

bool Execution::round_complete(Wait wait) {
  if (m_schedule.rounds[m_round].front().action == Action::node_barrier) return all_neighbours_came(wait);
  if (m_messages->empty(m_round)) return true;
  reach_delay_point("trainstone::comm::wait");
  if (wait == Wait::no) return m_messages->test(m_round);
  m_messages->wait(m_round);
  return true;
}

bool Execution::all_neighbours_came(Wait wait) {
  auto const came = [this] { return m_options.segment->all_arrived(m_ticket, m_barriers); };
  if (!until(wait, came)) return false;
  ++m_barriers;
  return true;
}

/// Looks at what no message tells: what neighbours do in shared memory, how far the caller's kernels are.
template <class IsDone>
bool Execution::until(Wait wait, IsDone const& is_done) {
  Patience patience;
  while (!is_done()) {
    // Others may wait for a message that this rank's MPI still has to deliver.
    constexpr unsigned looks_per_visit = 256;
    if (++m_looks % looks_per_visit == 0) m_messages->let_mpi_work();
    if (wait == Wait::no) return false;
    patience.look_again();
  }
  return true;
}

void Execution::enqueue_moves(std::size_t first, std::size_t last) {
  Round const& round = m_schedule.rounds[m_round];
  for (std::size_t i = first; i < last; ++i) {
    if (!round[i].is_local()) continue;
    switch (m_type) {
    case ElementType::float32: enqueue_move<float>(round[i]); break;
    case ElementType::float64: enqueue_move<double>(round[i]); break;
    case ElementType::bfloat16: enqueue_move<bf16>(round[i]); break;
    case ElementType::float16: enqueue_move<fp16>(round[i]); break;
    case ElementType::int32: enqueue_move<std::int32_t>(round[i]); break;
    case ElementType::int64: enqueue_move<std::int64_t>(round[i]); break;
    }
    m_kernels_enqueued = !m_options.on_host;
  }
}

Worker Execution::worker() const { return m_options.on_host ? Worker::calling_thread : Worker::kernels; }

template <class T>
void Execution::enqueue_move(Move const& move) {
  for (Index done = 0, length = 0; done < move.size(); done += length) {
    length = elements_of_kernel(move, m_options.pieces, done);
    enqueue_part<T>(move, {done, done + length});
  }
  Traffic& traffic = comm_counters().at(m_options.purpose, m_schedule.collective, m_schedule.algorithm);
  traffic.shared_bytes += shared_bytes(move, m_schedule, sizeof(T));
  if (move.copies()) return;
  Index const additions = move.action == Action::combine ? combined_parts(move, m_schedule) - 1 : 1;
  traffic.reduced += static_cast<std::uint64_t>(move.size() * additions);
}

/// Of a local move: `part` of its elements, which lie in one run.
template <class T>
void Execution::enqueue_part(Move const& move, Range const& part) {
  if (move.action == Action::combine) return enqueue_combine<T>(move, part);
  auto const size = static_cast<std::size_t>(part.size());
  Vector<T const> const from(reinterpret_cast<T const*>(address(move.from, part.begin)), size);
  Vector<T> const to(reinterpret_cast<T*>(address(move.to, part.begin)), size);
  if (move.action == Action::push) return push<T>(m_exec, from, to, worker());
  if (move.action == Action::copy) return copy<T>(m_exec, from, to, worker());
  reduce<T>(m_exec, m_operation, from, to, worker());
}

template <class T>
void Execution::enqueue_combine(Move const& move, Range const& part) {
  std::array<std::byte, 1024> room; // of few ranks: nothing is allocated
  std::pmr::monotonic_buffer_resource addresses(room.data(), room.size());
  std::pmr::vector<T const*> parts(&addresses);
  std::pmr::vector<T*> targets(&addresses);
  parts.reserve(static_cast<std::size_t>(combined_parts(move, m_schedule)));
  targets.reserve(move.to.owner == every_neighbour ? m_schedule.neighbours.size() : 1);
  if (move.from.owner == every_neighbour) {
    for (std::size_t i = 0; i < m_schedule.neighbours.size(); ++i)
      parts.push_back(reinterpret_cast<T const*>(neighbour_address(move.from, part.begin, i)));
  } else {
    for (Index i = 0; i < combined_parts(move, m_schedule); ++i)
      parts.push_back(reinterpret_cast<T const*>(address(move.from, i * move.size() + part.begin)));
  }
  if (move.to.owner == every_neighbour) {
    for (std::size_t i = 0; i < m_schedule.neighbours.size(); ++i)
      targets.push_back(reinterpret_cast<T*>(neighbour_address(move.to, part.begin, i)));
  } else {
    targets.push_back(reinterpret_cast<T*>(address(move.to, part.begin)));
  }
  combine<T>(m_exec, m_operation, parts, part.size(), targets, worker());
}

/// Of an element of a slice, counted from the slice's begin.
std::byte* Execution::address(Slice const& slice, Index element) const {
  if (slice.owner >= 0) {
    auto const place = std::ranges::lower_bound(m_schedule.neighbours, slice.owner) - m_schedule.neighbours.begin();
    return neighbour_address(slice, element, static_cast<std::size_t>(place));
  }
  if (slice.buffer == BufferId::mailbox) {
    TRAINSTONE_REQUIRE(m_schedule.needs_shared_memory(), "a mailbox of a schedule without neighbours: {} {}",
                       to_string(m_schedule.collective), to_string(m_schedule.algorithm));
    return neighbour_address(slice, element, m_options.segment->me());
  }
  bool const is_data = slice.buffer == BufferId::data;
  Memory const& memory = is_data ? m_data : m_scratch;
  Index const first = slice.range.begin + element, limit = is_data ? m_schedule.elements : m_scratch.elements;
  TRAINSTONE_REQUIRE(first >= 0 && slice.range.end <= limit, "{} [{}, {}) is outside of {} elements",
                     to_string(slice.buffer), slice.range.begin, slice.range.end, limit);
  Index const place = is_data && !slice.range.empty() ? m_options.pieces.place(first) : first;
  return memory.data + static_cast<std::size_t>(place) * size_of(m_type);
}

/// In the part of the node's segment that belongs to the neighbour, where it said at its first barrier.
std::byte* Execution::neighbour_address(Slice const& slice, Index element, std::size_t neighbour) const {
  SharedSegment const& segment = *m_options.segment;
  bool const is_data = slice.buffer == BufferId::data;
  Index const first = slice.range.begin + element;
  auto const begin = static_cast<std::uint64_t>(is_data ? m_options.pieces.place(first) : first) * size_of(m_type);
  if (slice.buffer == BufferId::mailbox) {
    TRAINSTONE_REQUIRE(slice.range.begin >= 0 && slice.range.end <= mailbox_elements, "mailbox [{}, {}) of {} elements",
                       slice.range.begin, slice.range.end, mailbox_elements);
    return segment.mailbox(m_ticket, neighbour) + begin;
  }
  std::uint64_t const buffer =
      is_data ? segment.data_offset(m_ticket, neighbour) : segment.scratch_offset(m_ticket, neighbour);
  TRAINSTONE_REQUIRE(buffer != not_shared, "{} of rank {} lies outside of the node's shared memory",
                     to_string(slice.buffer), m_schedule.neighbours[neighbour]);
  Index const last = is_data ? m_options.pieces.place(slice.range.end - 1) : slice.range.end - 1;
  std::uint64_t const end = buffer + static_cast<std::uint64_t>(last + 1) * size_of(m_type);
  TRAINSTONE_REQUIRE(end <= segment.part_bytes(neighbour), "{} [{}, {}) ends behind the neighbour's {} bytes",
                     to_string(slice.buffer), slice.range.begin, slice.range.end, segment.part_bytes(neighbour));
  return segment.part(neighbour) + buffer + begin;
}

} // namespace trainstone
