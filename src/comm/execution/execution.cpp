#include "comm/execution/execution.hpp"

#include "comm/execution/buffers.hpp"
#include "comm/execution/message_rounds.hpp"
#include "comm/execution/order_check.hpp"
#include "core/launch.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <utility>

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
    m_ends = false;
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
  while (m_round < m_schedule.rounds.size()) {
    if (!round_complete(wait)) return false;
    Round const& round = m_schedule.rounds[m_round];
    enqueue_moves(Impl::early_moves(round), round.size());
    m_ends = m_round + 1 == m_schedule.rounds.size();
    ++m_round;
    if (!m_ends) begin_round();
  }
  if (m_ends && !end(wait)) return false;
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

/// Neighbours are told when no kernel reads any longer what belongs to the ticket.
bool Execution::end(Wait wait) {
  if (m_schedule.needs_shared_memory()) {
    if (!kernels_have_ended(wait)) return false;
    m_options.segment->close_ticket(m_ticket);
  }
  m_ends = false;
  if (m_options.caller) order_after(m_exec, *m_options.caller);
  return true;
}

void Execution::begin_round() {
  Round const& round = m_schedule.rounds[m_round];
  if (round.front().action == Action::node_barrier) {
    m_arrived = false;
    come_to_barrier(Wait::no);
    return;
  }
  if (!m_messages->empty(m_round)) {
    if (std::exchange(m_kernels_enqueued, false)) m_messages->come_after(m_exec);
    m_messages->post(m_round, comm_counters().at(m_options.purpose, m_schedule.collective, m_schedule.algorithm));
  }
  enqueue_moves(0, Impl::early_moves(round));
}

/// Whether all that is enqueued so far has ended.
bool Execution::kernels_have_ended(Wait wait) {
  if (std::exchange(m_kernels_enqueued, false)) {
    m_kernels.record(m_exec);
    m_kernels_run = true;
  }
  if (m_kernels_run && !until(wait, [this] { return m_kernels.is_done(); })) return false;
  m_kernels_run = false;
  return true;
}

/// It is the host that looks at kernels and at flags. A kernel that waited for another rank's kernel could wait for
/// ever: ranks may take turns on one device, and each begins collectives in the order in which its data gets ready.
bool Execution::come_to_barrier(Wait wait) {
  if (m_arrived) return true;
  if (!kernels_have_ended(wait)) return false;
  reach_delay_point("trainstone::comm::barrier");
  arrive();
  m_arrived = true;
  return true;
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
  if (!come_to_barrier(wait)) return false;
  auto const came = [this] { return m_options.segment->all_arrived(m_ticket, m_barriers); };
  if (!until(wait, came)) return false;
  ++m_barriers;
  return true;
}

/// Looks at what no message tells: what neighbours do in shared memory, how far kernels are.
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

} // namespace trainstone
