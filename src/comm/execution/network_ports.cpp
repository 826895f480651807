#include "comm/execution/network_ports.hpp"

#include "comm/execution/node_memory.hpp"
#include "comm/execution/shared_segment.hpp"
#include "core/error.hpp"

#include <algorithm>
#include <array>
#include <atomic>
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

std::size_t PortClocks::bytes(std::size_t ports) { return cache_line + ports * sizeof(std::int64_t); }

PortClocks::PortClocks(std::byte* memory)
    : m_lock(reinterpret_cast<std::uint32_t*>(memory)), m_free(reinterpret_cast<std::int64_t*>(memory + cache_line)) {}

PortClocks::Time PortClocks::take(std::span<std::size_t const> ports, Time now,
                                  std::chrono::duration<double> busy) const {
  ScopedLock const lock(*m_lock);
  Time start = now;
  for (std::size_t const port : ports) start = std::max(start, Time(std::chrono::nanoseconds(m_free[port])));
  Time const end = start + std::chrono::ceil<Time::duration>(busy);
  std::chrono::nanoseconds const since_epoch = end.time_since_epoch();
  for (std::size_t const port : ports) m_free[port] = since_epoch.count();
  return end;
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
  Ends const &sender = m_ends[static_cast<std::size_t>(from)], &receiver = m_ends[static_cast<std::size_t>(to)];
  Link const link = sender.node == receiver.node ? Link::intra : Link::inter;
  bool const through_nodes = link == Link::inter && m_network.node_port;
  std::array<std::size_t, 4> ports{sender.out};
  std::size_t count = 1;
  if (receiver.here) ports[count++] = receiver.in;
  if (through_nodes) ports[count++] = sender.node_out;
  if (through_nodes && receiver.here) ports[count++] = receiver.node_in;
  std::chrono::duration<double> const busy(m_network.of(link).seconds(static_cast<double>(bytes)));
  return m_clocks->take(std::span(ports).first(count), now, busy);
}

} // namespace trainstone::Impl
