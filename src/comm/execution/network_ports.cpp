#include "comm/execution/network_ports.hpp"

#include "comm/execution/node_memory.hpp"
#include "comm/execution/shared_segment.hpp"
#include "core/error.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <iterator>
#include <limits>
#include <utility>

namespace trainstone::Impl {

namespace {

constexpr std::size_t cache_line = 64;

/// Held for some loads and stores. Processes cannot share a lock of the standard library.
class ScopedLock {
public:
  explicit ScopedLock(std::uint32_t& lock) : m_lock(lock) {
    Patience patience;
    while (m_lock.exchange(1, std::memory_order_acquire) != 0) patience.look_again();
  }
  ScopedLock(ScopedLock const&) = delete;
  ScopedLock& operator=(ScopedLock const&) = delete;
  ~ScopedLock() { m_lock.store(0, std::memory_order_release); }

private:
  std::atomic_ref<std::uint32_t> m_lock;
};
static_assert(std::atomic_ref<std::uint32_t>::is_always_lock_free);

/// Clocks, and the memory that they lie in.
struct SharedClocks {
  NodeMemory memory;
  PortClocks clocks;
};

std::shared_ptr<PortClocks const> share_clocks(Communicator const& machines, std::size_t ports) {
  std::uint64_t const bytes = PortClocks::bytes(ports);
  NodeMemory memory = share_memory(machines, "ports of the emulated network", bytes);
  on_all_ranks(machines, "have the ports of the emulated network", [&] { memory.populate(0, bytes); });
  PortClocks const clocks(memory.begin());
  auto const shared = std::make_shared<SharedClocks>(SharedClocks{std::move(memory), clocks});
  return {shared, &shared->clocks};
}

} // namespace

/// The times that are taken, ascending and apart, in ns of the clock.
struct PortClocks::Port {
  struct Interval {
    std::int64_t begin, end;
  };
  std::int64_t count;
  std::int64_t forgotten; ///< the end of the last interval that is not remembered
  std::array<Interval, most_booked> booked;

  void forget_before(std::int64_t now) {
    auto const* const first =
        std::find_if(booked.begin(), booked.begin() + count, [=](Interval const& one) { return one.end > now; });
    if (first != booked.begin()) forgotten = std::prev(first)->end;
    std::move(first, static_cast<Interval const*>(booked.begin() + count), booked.begin());
    count -= first - booked.begin();
  }

  /// The first moment from `begin` on that is not taken, and the next one that is.
  Interval free_from(std::int64_t begin) const {
    for (Interval const& one : std::span(booked).first(static_cast<std::size_t>(count))) {
      if (one.begin > begin) return {begin, one.begin};
      begin = std::max(begin, one.end);
    }
    return {begin, std::numeric_limits<std::int64_t>::max()};
  }

  bool has_room() const { return count < std::ssize(booked); }
  /// From when on it can be booked: a rank that has read its clock long ago may come late.
  std::int64_t first_bookable() const {
    return std::max(forgotten, has_room() ? 0 : booked[static_cast<std::size_t>(count - 1)].end);
  }

  /// An interval that overlaps none.
  void book(Interval const& mine) {
    Interval* const next = std::find_if(booked.begin(), booked.begin() + count,
                                        [&](Interval const& one) { return one.begin >= mine.end; });
    Interval* const before = next == booked.begin() ? nullptr : next - 1;
    bool const joins_next = next != booked.begin() + count && next->begin == mine.end;
    if (before && before->end == mine.begin) {
      before->end = mine.end;
      if (!joins_next) return;
      before->end = next->end;
      std::move(next + 1, booked.begin() + count, next);
      --count;
    } else if (joins_next) {
      next->begin = mine.begin;
    } else if (has_room()) {
      std::move_backward(next, booked.begin() + count, booked.begin() + count + 1);
      *next = mine;
      ++count;
    } else {
      booked.back().end = std::max(booked.back().end, mine.end); // behind the last one, with the gap before it
    }
  }
};

std::size_t PortClocks::bytes(std::size_t ports) { return cache_line + ports * sizeof(Port); }

PortClocks::PortClocks(std::byte* memory) : m_memory(memory) {}

PortClocks::Port& PortClocks::port(std::size_t number) const {
  return reinterpret_cast<Port*>(m_memory + cache_line)[number];
}

PortClocks::Time PortClocks::take(std::span<std::size_t const> ports, Time now,
                                  std::chrono::duration<double> busy) const {
  std::int64_t const length = std::max<std::int64_t>(1, std::chrono::ceil<std::chrono::nanoseconds>(busy).count());
  std::int64_t begin = std::chrono::nanoseconds(now.time_since_epoch()).count();
  ScopedLock const lock(*reinterpret_cast<std::uint32_t*>(m_memory));
  for (std::size_t const number : ports) port(number).forget_before(begin);
  for (std::int64_t left = length; left > 0;) {
    Port::Interval free{begin, std::numeric_limits<std::int64_t>::max()}; // of all ports
    for (std::size_t const number : ports) {
      Port::Interval const of_port = port(number).free_from(std::max(begin, port(number).first_bookable()));
      free = {std::max(free.begin, of_port.begin), std::min(free.end, of_port.end)};
    }
    begin = free.begin;
    if (free.begin >= free.end) continue; // one is free later than another one is taken
    std::int64_t const end = std::min(free.end, begin + left);
    for (std::size_t const number : ports) port(number).book({begin, end});
    left -= end - begin;
    begin = end;
  }
  return Time(std::chrono::duration_cast<Time::duration>(std::chrono::nanoseconds(begin)));
}

std::vector<std::size_t> ports_between(RankPorts const& sender, RankPorts const& receiver, bool node_port) {
  bool const through_nodes = node_port && sender.node != receiver.node;
  std::vector<std::size_t> ports{sender.out};
  if (receiver.here) ports.push_back(receiver.in);
  if (through_nodes) ports.push_back(sender.node_out);
  if (through_nodes && receiver.here) ports.push_back(receiver.node_in);
  return ports;
}

NetworkPorts::NetworkPorts(EmulatedNetwork const& network, Communicator const& communicator,
                           Communicator const& machines)
    : m_network(network) {
  Topology const &nodes = communicator.topology(), &real = machines.topology();
  auto const ranks = static_cast<std::size_t>(communicator.size());
  m_clocks = share_clocks(machines, 2 * (ranks + static_cast<std::size_t>(nodes.nodes())));
  for (Rank rank = 0; rank < communicator.size(); ++rank) {
    std::size_t const own = 2 * static_cast<std::size_t>(rank);
    std::size_t const of_node = 2 * (ranks + static_cast<std::size_t>(nodes.node_of(rank)));
    bool const here = real.link(communicator.rank(), rank) == Link::intra;
    m_ends.push_back({nodes.node_of(rank), here, own, own + 1, of_node, of_node + 1});
  }
}

NetworkPorts NetworkPorts::of(std::vector<Rank> const& members) const {
  NetworkPorts part = *this;
  part.m_ends.clear();
  for (Rank const member : members) part.m_ends.push_back(m_ends[static_cast<std::size_t>(member)]);
  return part;
}

NetworkPorts::Time NetworkPorts::send(Time now, Rank from, Rank to, std::uint64_t bytes) const {
  RankPorts const &sender = m_ends[static_cast<std::size_t>(from)], &receiver = m_ends[static_cast<std::size_t>(to)];
  Link const link = sender.node == receiver.node ? Link::intra : Link::inter;
  std::chrono::duration<double> const busy(m_network.of(link).seconds(static_cast<double>(bytes)));
  return m_clocks->take(ports_between(sender, receiver, m_network.node_port), now, busy);
}

} // namespace trainstone::Impl
