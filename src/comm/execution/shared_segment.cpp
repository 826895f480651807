#include "comm/execution/shared_segment.hpp"

#include "comm/execution/buffers.hpp"
#include "comm/execution/control.hpp"
#include "comm/execution/exported_parts.hpp"
#include "comm/execution/node_memory.hpp"
#include "comm/execution/shared_overhead.hpp"
#include "core/error.hpp"
#include "core/large_pages.hpp"

#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

namespace trainstone {

namespace {

using Flag = std::atomic<std::uint64_t>;
static_assert(Flag::is_always_lock_free, "processes cannot share a lock of the standard library");

/// What a rank tells its neighbours about a ticket, in cache lines that it alone writes. A few elements share the first
/// line with the flag: who sees that the rank has come has them, too.
struct alignas(64) Arrival {
  Flag arrived{0}; ///< the number of the last barrier come to; it only grows
  std::uint64_t data_offset = 0;
  std::uint64_t scratch_offset = 0;
  std::array<std::byte, SharedSegment::mailbox_bytes> mailbox;
};
static_assert(sizeof(Arrival) == 1024);

/// What a rank has done with.
struct alignas(64) Done {
  Flag closed_below{0}; ///< all tickets with lower numbers are closed
  Flag left{0};         ///< 1: it has no neighbour's part mapped any longer, where parts are exported
};

/// What a rank's neighbours look at while they wait for it.
struct Signals {
  std::array<Arrival, SharedSegment::open_tickets> arrivals;
  Done done;
};

constexpr std::uint64_t most_steps = std::uint64_t{1} << 16;

std::uint64_t barrier_number(std::uint64_t ticket, std::uint64_t step) { return ticket * most_steps + step + 1; }

/// Mailboxes of exported parts, which begin with them, for all tickets: kernels of a device do not reach the flags.
constexpr std::uint64_t mail_stride = 1024;
static_assert(mail_stride >= SharedSegment::mailbox_bytes);
constexpr std::uint64_t mail_bytes = SharedSegment::open_tickets * mail_stride;

/// What a rank of the node owns in the segment.
struct Member {
  Signals* signals = nullptr;
  std::byte* part = nullptr;
  std::uint64_t bytes = 0;
  std::byte* mail = nullptr; ///< null: mailboxes lie beside the flags

  Arrival& of(std::uint64_t ticket) const { return signals->arrivals[ticket % SharedSegment::open_tickets]; }
};

std::uint64_t whole_pages(std::uint64_t bytes) { return round_up(bytes, Impl::page_bytes()); }

/// Of the host's memory: a rank's signals, then its part, unless it is exported.
std::uint64_t footprint_in_pages(std::uint64_t part_bytes) {
  return whole_pages(sizeof(Signals)) + (memory_export() ? 0 : whole_pages(part_bytes));
}

/// Of other memory, where parts are exported.
std::uint64_t exported_footprint(std::uint64_t part_bytes) {
  return memory_export() ? round_up(mail_bytes + part_bytes, memory_export()->granularity) : 0;
}

/// Lets the sibling thread of a core work, and the pipeline rest, while spinning.
void relax() {
#if defined(__x86_64__) || defined(__i386__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

} // namespace

struct SharedSegment::State {
  MemoryLedger* ledger;
  MemoryCategory category;
  std::uint64_t overhead; ///< as entered in the ledger
  std::vector<Rank> neighbours;
  Impl::NodeMemory memory;
  std::unique_ptr<Impl::ExportedParts> exported; ///< null: the parts lie in `memory`
  std::vector<Member> members;                   ///< by place in neighbours
  std::size_t me;
  std::uint64_t ticket = 0;
  std::uint64_t done_by_all = 0; ///< all ranks have closed the tickets below, as far as this one has looked
  std::array<bool, open_tickets> open{};
  bool given_up = false;

  Member const& mine() const { return members[me]; }
  bool is_left_by_all() const {
    return std::ranges::all_of(
        members, [](Member const& member) { return member.signals->done.left.load(std::memory_order_acquire) == 1; });
  }
  void look_what_is_done() {
    done_by_all = ticket;
    for (Member const& member : members)
      done_by_all = std::min(done_by_all, member.signals->done.closed_below.load(std::memory_order_acquire));
  }
};

std::uint64_t shared_overhead(std::uint64_t part_bytes) {
  return footprint_in_pages(part_bytes) + exported_footprint(part_bytes) - part_bytes;
}

SharedSegment::SharedSegment(Communicator const& communicator, MemoryLedger& ledger, MemoryCategory category,
                             std::string const& label, std::uint64_t bytes) {
  std::vector<std::uint64_t> const part_bytes = all_gather_values(communicator, bytes);
  free_what_all_left(); // now all ranks of this communicator have left the segments before
  std::vector<Rank> const& neighbours = communicator.topology().neighbours(communicator.rank());
  std::uint64_t total = 0;
  for (Rank const rank : neighbours) total += footprint_in_pages(part_bytes[static_cast<std::size_t>(rank)]);
  auto const me = static_cast<std::size_t>(std::ranges::find(neighbours, communicator.rank()) - neighbours.begin());
  m_state = std::make_unique<State>(State{&ledger,
                                          category,
                                          shared_overhead(bytes),
                                          neighbours,
                                          Impl::share_memory(communicator, label, total),
                                          nullptr,
                                          {},
                                          me,
                                          0,
                                          0,
                                          {},
                                          false});

  std::byte* place = m_state->memory.begin();
  for (Rank const rank : neighbours) {
    std::uint64_t const size = part_bytes[static_cast<std::size_t>(rank)];
    m_state->members.push_back({reinterpret_cast<Signals*>(place), place + whole_pages(sizeof(Signals)), size});
    place += footprint_in_pages(size);
  }
  Member const& mine = m_state->mine();
  Impl::on_all_ranks(communicator, fmt::format("have {} bytes of shared memory for {}", bytes, label), [&] {
    auto const offset = reinterpret_cast<std::byte*>(mine.signals) - m_state->memory.begin();
    m_state->memory.populate(static_cast<std::uint64_t>(offset), footprint_in_pages(bytes));
    std::construct_at(mine.signals); // seen by all before anybody arrives
  });
  if (MemoryExport const* const calls = memory_export()) {
    m_state->exported = std::make_unique<Impl::ExportedParts>(*calls, communicator, label, exported_footprint(bytes));
    for (std::size_t n = 0; n < neighbours.size(); ++n) {
      m_state->members[n].mail = m_state->exported->part(n);
      m_state->members[n].part = m_state->exported->part(n) + mail_bytes;
    }
  }
  ledger.add(category, bytes);
  ledger.add(MemoryCategory::buffers, m_state->overhead);
}

SharedSegment::SharedSegment(SharedSegment&&) noexcept = default;

SharedSegment::~SharedSegment() {
  if (!m_state) return;
  m_state->ledger->remove(m_state->category, m_state->mine().bytes);
  m_state->ledger->remove(MemoryCategory::buffers, m_state->overhead);
  if (!m_state->exported) return;
  m_state->exported->unmap_neighbours();
  m_state->mine().signals->done.left.store(1, std::memory_order_release);
  left_states().push_back(std::move(m_state));
  free_what_all_left();
}

/// Of segments that have ended here. Never destroyed: at the end of the program there are no devices any longer.
std::vector<std::unique_ptr<SharedSegment::State>>& SharedSegment::left_states() {
  static auto& states = *new std::vector<std::unique_ptr<State>>;
  return states;
}

/// No process may free memory that another one has mapped, and none waits here for the others: they may wait for it.
void SharedSegment::free_what_all_left() {
  std::erase_if(left_states(), [](std::unique_ptr<State> const& state) { return state->is_left_by_all(); });
}

Vector<std::byte> SharedSegment::bytes() const {
  return Vector<std::byte>(m_state->mine().part, m_state->mine().bytes);
}

std::vector<Rank> const& SharedSegment::neighbours() const { return m_state->neighbours; }

std::byte* SharedSegment::part(std::size_t neighbour) const { return m_state->members[neighbour].part; }

std::uint64_t SharedSegment::part_bytes(std::size_t neighbour) const { return m_state->members[neighbour].bytes; }

bool SharedSegment::contains(std::byte const* first, std::uint64_t bytes) const {
  auto const begin = reinterpret_cast<std::uintptr_t>(m_state->mine().part);
  auto const address = reinterpret_cast<std::uintptr_t>(first);
  std::uint64_t const size = m_state->mine().bytes;
  return address >= begin && address - begin <= size && bytes <= size - (address - begin);
}

std::uint64_t SharedSegment::next_ticket() {
  State& state = *m_state;
  TRAINSTONE_REQUIRE(!state.given_up,
                     "an error has left collective {} of a shared segment or an earlier one unfinished", state.ticket);
  bool& open = state.open[state.ticket % open_tickets];
  TRAINSTONE_REQUIRE(!open, "collective {} of a shared segment begins before collective {} has ended", state.ticket,
                     state.ticket - open_tickets);
  open = true;
  return state.ticket++;
}

bool SharedSegment::is_free(std::uint64_t ticket) {
  State& state = *m_state;
  if (ticket < state.done_by_all + open_tickets) return true;
  state.look_what_is_done(); // once in so many tickets
  return ticket < state.done_by_all + open_tickets;
}

void SharedSegment::give_up() noexcept { m_state->given_up = true; }

void SharedSegment::close_ticket(std::uint64_t ticket) {
  State& state = *m_state;
  state.open[ticket % open_tickets] = false;
  Flag& closed_below = state.mine().signals->done.closed_below;
  std::uint64_t first_open = closed_below.load(std::memory_order_relaxed);
  while (first_open < state.ticket && !state.open[first_open % open_tickets]) ++first_open;
  closed_below.store(first_open, std::memory_order_release);
}

void SharedSegment::arrive(std::uint64_t ticket, std::uint64_t step, std::uint64_t data_offset,
                           std::uint64_t scratch_offset) {
  Arrival& mine = m_state->mine().of(ticket);
  std::uint64_t const number = barrier_number(ticket, step);
  TRAINSTONE_REQUIRE(step + 1 < most_steps && mine.arrived.load(std::memory_order_relaxed) < number,
                     "barrier {} of ticket {} comes too late or twice", step, ticket);
  if (step == 0) {
    mine.data_offset = data_offset;
    mine.scratch_offset = scratch_offset;
  }
  mine.arrived.store(number, std::memory_order_release);
  // The neighbours have read these lines since this rank wrote them. To take them back is as long as half a barrier,
  // and goes on while this rank waits.
  Arrival& next = m_state->mine().of(ticket + 1);
  for (std::size_t line = 0; line < 2; ++line) __builtin_prefetch(reinterpret_cast<std::byte*>(&next) + 64 * line, 1);
}

bool SharedSegment::all_arrived(std::uint64_t ticket, std::uint64_t step) const {
  std::uint64_t const number = barrier_number(ticket, step);
  return std::ranges::all_of(m_state->members, [&](Member const& member) {
    return member.of(ticket).arrived.load(std::memory_order_acquire) >= number;
  });
}

std::uint64_t SharedSegment::data_offset(std::uint64_t ticket, std::size_t neighbour) const {
  return m_state->members[neighbour].of(ticket).data_offset;
}

std::uint64_t SharedSegment::scratch_offset(std::uint64_t ticket, std::size_t neighbour) const {
  return m_state->members[neighbour].of(ticket).scratch_offset;
}

std::byte* SharedSegment::mailbox(std::uint64_t ticket, std::size_t neighbour) const {
  Member const& member = m_state->members[neighbour];
  return member.mail ? member.mail + ticket % open_tickets * mail_stride : member.of(ticket).mailbox.data();
}

std::size_t SharedSegment::me() const { return m_state->me; }

void Patience::look_again() {
  // About a microsecond. Measured barriers, two cores: 0.3 us with 2 ranks, 10 us with 8; 90 us with 8 ranks and 1000
  // looks, 38 us with 2 ranks when they sleep at once.
  constexpr int spins = 50;
  if (m_looks < spins) {
    ++m_looks;
    return relax();
  }
  sched_yield();
}

} // namespace trainstone
