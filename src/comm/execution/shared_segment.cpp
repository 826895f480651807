#include "comm/execution/shared_segment.hpp"

#include "comm/control.hpp"
#include "comm/execution/node_memory.hpp"
#include "core/error.hpp"

#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <new>
#include <numeric>
#include <utility>
#include <vector>

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

namespace trainstone {

namespace {

using Flag = std::atomic<std::uint64_t>;
static_assert(Flag::is_always_lock_free, "processes cannot share a lock of the standard library");

/// What a rank tells its neighbours about a ticket: a cache line that it alone writes.
struct alignas(64) Arrival {
  Flag arrived{0}; ///< the number of the last barrier come to; it only grows
  std::uint64_t data_offset = 0;
  std::uint64_t scratch_offset = 0;
};
static_assert(sizeof(Arrival) == 64);

constexpr std::uint64_t most_steps = std::uint64_t{1} << 16;
constexpr std::uint64_t arrivals_bytes = SharedSegment::open_tickets * sizeof(Arrival);

std::uint64_t barrier_number(std::uint64_t ticket, std::uint64_t step) { return ticket * most_steps + step + 1; }

/// What a rank of the node owns in the segment.
struct Member {
  Arrival* arrivals = nullptr;
  std::byte* part = nullptr;
  std::uint64_t bytes = 0;

  Arrival& of(std::uint64_t ticket) const { return arrivals[ticket % SharedSegment::open_tickets]; }
};

std::uint64_t whole_pages(std::uint64_t bytes) {
  std::uint64_t const page = Impl::page_bytes();
  return (bytes + page - 1) / page * page;
}

/// A rank's arrivals, then its part.
std::uint64_t footprint(std::uint64_t part_bytes) { return whole_pages(arrivals_bytes) + whole_pages(part_bytes); }

/// Lets the sibling thread of a core work, and the pipeline rest, while spinning.
void relax() {
#if defined(__x86_64__) || defined(__i386__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

Impl::NodeMemory share(Communicator const& communicator, std::string const& label, std::uint64_t bytes) {
  try {
    return {communicator, bytes, Impl::Sharing::nameless};
  } catch (CollectiveError const& nameless) {
    try {
      return {communicator, bytes, Impl::Sharing::named};
    } catch (CollectiveError const& named) {
      throw CollectiveError(
          fmt::format("shared memory for {}: {}; and with a name: {}", label, nameless.what(), named.what()));
    }
  }
}

} // namespace

struct SharedSegment::State {
  MemoryLedger* ledger;
  MemoryCategory category;
  std::vector<Rank> neighbours;
  Impl::NodeMemory memory;
  std::vector<Member> members; ///< by place in neighbours
  std::size_t me;
  std::uint64_t ticket = 0;
  std::array<bool, open_tickets> open{};

  Member const& mine() const { return members[me]; }
};

SharedSegment::SharedSegment(Communicator const& communicator, MemoryLedger& ledger, MemoryCategory category,
                             std::string const& label, std::uint64_t bytes) {
  constexpr bool accessible = Kokkos::SpaceAccessibility<Kokkos::HostSpace, MemorySpace>::accessible;
  TRAINSTONE_REQUIRE(accessible, "{}: shared memory is host memory, this build's memory space is {}", label,
                     MemorySpace::name());
  std::vector<std::uint64_t> const part_bytes = all_gather_values(communicator, bytes);
  std::vector<Rank> const& neighbours = communicator.topology().neighbours(communicator.rank());
  std::uint64_t total = 0;
  for (Rank const rank : neighbours) total += footprint(part_bytes[static_cast<std::size_t>(rank)]);
  auto const me = static_cast<std::size_t>(std::ranges::find(neighbours, communicator.rank()) - neighbours.begin());
  m_state =
      std::make_unique<State>(State{&ledger, category, neighbours, share(communicator, label, total), {}, me, 0, {}});

  std::byte* place = m_state->memory.begin();
  for (Rank const rank : neighbours) {
    std::uint64_t const size = part_bytes[static_cast<std::size_t>(rank)];
    m_state->members.push_back({reinterpret_cast<Arrival*>(place), place + whole_pages(arrivals_bytes), size});
    place += footprint(size);
  }
  Member const& mine = m_state->mine();
  Impl::on_all_ranks(communicator, fmt::format("have {} bytes of shared memory for {}", bytes, label), [&] {
    auto const offset = reinterpret_cast<std::byte*>(mine.arrivals) - m_state->memory.begin();
    m_state->memory.populate(static_cast<std::uint64_t>(offset), footprint(bytes));
    std::uninitialized_default_construct_n(mine.arrivals, open_tickets); // seen by all before anybody arrives
  });
  ledger.add(category, bytes);
}

SharedSegment::SharedSegment(SharedSegment&&) noexcept = default;

SharedSegment::~SharedSegment() {
  if (m_state) m_state->ledger->remove(m_state->category, m_state->mine().bytes);
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
  bool& open = m_state->open[m_state->ticket % open_tickets];
  TRAINSTONE_REQUIRE(!open, "more than {} collectives in flight in one shared segment", open_tickets);
  open = true;
  return m_state->ticket++;
}

void SharedSegment::close_ticket(std::uint64_t ticket) { m_state->open[ticket % open_tickets] = false; }

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
