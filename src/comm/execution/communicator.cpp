#include "comm/execution/communicator.hpp"

#include "comm/execution/buffers.hpp"
#include "comm/execution/control.hpp"
#include "comm/execution/mpi.hpp"
#include "comm/execution/order_check.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <fstream>
#include <map>
#include <utility>

namespace trainstone {

namespace {

std::string host_name() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

/// Changes with every boot; empty where the system does not tell.
std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  file >> id;
  return id;
}

int largest_tag(MPI_Comm comm) {
  void* value = nullptr;
  int found = 0;
  TRAINSTONE_MPI_CHECK(MPI_Comm_get_attr(comm, MPI_TAG_UB, &value, &found));
  return found ? *static_cast<int*>(value) : 32767; // the standard's minimum
}

std::unique_ptr<Impl::CommunicatorHandle> owned(MPI_Comm comm) {
  TRAINSTONE_MPI_CHECK(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
  auto handle = std::make_unique<Impl::CommunicatorHandle>();
  handle->comm = comm;
  handle->largest_tag = largest_tag(comm);
  return handle;
}

} // namespace

NodeMap make_node_map(std::vector<std::string> const& host_names, std::vector<std::string> const& boot_ids) {
  NodeMap nodes;
  std::map<std::pair<std::string, std::string>, int> numbers;
  for (std::size_t rank = 0; rank < host_names.size(); ++rank) {
    auto const [entry, is_new] = numbers.try_emplace({host_names[rank], boot_ids[rank]}, nodes.count);
    if (is_new) {
      ++nodes.count;
      nodes.host_names.push_back(host_names[rank]);
    }
    nodes.node_of_rank.push_back(entry->second);
  }
  return nodes;
}

Communicator::Communicator(std::unique_ptr<Impl::CommunicatorHandle> handle, std::string const& emulated_node)
    : m_handle(std::move(handle)), m_emulated_node(emulated_node) {
  TRAINSTONE_MPI_CHECK(MPI_Comm_rank(m_handle->comm, &m_rank));
  TRAINSTONE_MPI_CHECK(MPI_Comm_size(m_handle->comm, &m_size));
  m_nodes = make_node_map(all_gather_texts(*this, host_name() + emulated_node), all_gather_texts(*this, boot_id()));
  m_topology = Topology(m_nodes.node_of_rank);
}

Communicator Communicator::world(int emulated_nodes) {
  MPI_Comm comm = MPI_COMM_NULL;
  TRAINSTONE_MPI_CHECK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
  auto handle = owned(comm);
  if (emulated_nodes == 0) return Communicator(std::move(handle), "");
  int rank = 0;
  int size = 0;
  TRAINSTONE_MPI_CHECK(MPI_Comm_rank(comm, &rank));
  TRAINSTONE_MPI_CHECK(MPI_Comm_size(comm, &size));
  TRAINSTONE_REQUIRE_INPUT(emulated_nodes > 0 && emulated_nodes <= size,
                           "{} nodes cannot be emulated with {} ranks: 1 to {} can", emulated_nodes, size, size);
  int const node = Topology::block(size, emulated_nodes).node_of(rank);
  return Communicator(std::move(handle), fmt::format(" (emulated node {})", node));
}

Communicator::Communicator(Communicator&&) noexcept = default;
Communicator& Communicator::operator=(Communicator&& other) noexcept {
  std::swap(m_handle, other.m_handle); // the other one frees what this one held, and must still know it
  std::swap(m_nodes, other.m_nodes);
  std::swap(m_topology, other.m_topology);
  std::swap(m_emulated_node, other.m_emulated_node);
  std::swap(m_rank, other.m_rank);
  std::swap(m_size, other.m_size);
  return *this;
}

Communicator::~Communicator() {
  if (!m_handle) return;
  // MPICH 5.0 ends the program when messages are left in a communicator that is freed.
  if (m_handle->failed || std::uncaught_exceptions() > 0) {
    if (m_handle->order != MPI_COMM_NULL) Impl::give_up_order_check(*this);
    return;
  }
  if (m_handle->order != MPI_COMM_NULL) Impl::leave_order_check(*this);
  MPI_Comm_free(&m_handle->comm);
}

Communicator Communicator::split(int colour) const {
  TRAINSTONE_REQUIRE(colour >= 0, "colour {} is negative", colour);
  static CollectiveCall const call("split of the communicator");
  announce_and_compare(call);
  MPI_Comm comm = MPI_COMM_NULL;
  TRAINSTONE_MPI_CHECK(MPI_Comm_split(m_handle->comm, colour, m_rank, &comm));
  return part(owned(comm));
}

std::optional<Communicator> Communicator::first(Rank ranks) const {
  TRAINSTONE_REQUIRE(ranks >= 1 && ranks <= m_size, "no first {} ranks of {}", ranks, m_size);
  announce_and_compare(CollectiveCall(fmt::format("first {} ranks of the communicator", ranks)));
  MPI_Comm comm = MPI_COMM_NULL;
  int const colour = m_rank < ranks ? 0 : MPI_UNDEFINED;
  TRAINSTONE_MPI_CHECK(MPI_Comm_split(m_handle->comm, colour, m_rank, &comm));
  if (comm == MPI_COMM_NULL) return {};
  return part(owned(comm));
}

Communicator Communicator::part(std::unique_ptr<Impl::CommunicatorHandle> handle) const {
  Communicator made(std::move(handle), m_emulated_node);
  if (m_handle->ports)
    made.m_handle->ports = std::make_shared<Impl::NetworkPorts>(m_handle->ports->of(all_gather_values(made, m_rank)));
  made.m_handle->buffers = m_handle->buffers;
  made.m_handle->copies = m_handle->copies;
  made.m_handle->reaches_neighbours = m_handle->reaches_neighbours;
  if (m_handle->order != MPI_COMM_NULL) made.check_order(OrderCheck::yes);
  return made;
}

void Communicator::emulate_network(EmulatedNetwork const& network) {
  auto const is_time = [](double seconds) { return seconds >= 0 && std::isfinite(seconds); };
  for (EmulatedLink const& link : network.links)
    TRAINSTONE_REQUIRE(is_time(link.latency) && is_time(link.seconds_per_byte),
                       "no network has a latency of {} s and takes {} s per byte", link.latency, link.seconds_per_byte);
  static CollectiveCall const call("emulation of a network");
  announce_and_compare(call);
  m_handle->ports = nullptr;
  if (!network.is_slow()) return;
  MPI_Comm comm = MPI_COMM_NULL;
  TRAINSTONE_MPI_CHECK(MPI_Comm_dup(m_handle->comm, &comm));
  Communicator const machines(owned(comm), "");
  m_handle->ports = std::make_shared<Impl::NetworkPorts>(network, *this, machines);
}

void Communicator::use_buffers(MessageBuffers buffers, ExecutionSpace const& exec) {
  m_handle->buffers = buffers;
  m_handle->copies = buffers == MessageBuffers::staged ? std::make_shared<CopyInstances const>(exec) : nullptr;
}

MessageBuffers Communicator::buffers() const { return m_handle->buffers; }

void Communicator::use_neighbours_memory(bool is_proved) { m_handle->reaches_neighbours = is_proved; }

bool Communicator::reaches_neighbours() const { return m_handle->reaches_neighbours; }

Rank Communicator::node_size() const {
  int const mine = m_nodes.node_of_rank[static_cast<std::size_t>(m_rank)];
  return static_cast<Rank>(std::ranges::count(m_nodes.node_of_rank, mine));
}

void Communicator::give_up() noexcept { m_handle->failed = true; }

HeldTag Communicator::take_tag() { return HeldTag(*m_handle); }

void Communicator::limit_tags(int largest) {
  TRAINSTONE_REQUIRE(largest >= m_handle->next_tag && largest <= m_handle->largest_tag, "no limit {} of tags: {} to {}",
                     largest, m_handle->next_tag, m_handle->largest_tag);
  m_handle->largest_tag = largest;
}

HeldTag::HeldTag(Impl::CommunicatorHandle& handle) : m_handle(&handle) {
  TRAINSTONE_REQUIRE(std::ssize(handle.held_tags) <= handle.largest_tag,
                     "{} collectives of one communicator are prepared, MPI has no more tags", handle.held_tags.size());
  bool is_free = false;
  while (!is_free) {
    m_tag = handle.next_tag;
    handle.next_tag = m_tag == handle.largest_tag ? 0 : m_tag + 1;
    is_free = handle.held_tags.insert(m_tag).second;
  }
}

HeldTag::HeldTag(HeldTag&& other) noexcept : m_handle(std::exchange(other.m_handle, nullptr)), m_tag(other.m_tag) {}

HeldTag::~HeldTag() {
  if (m_handle) m_handle->held_tags.erase(m_tag);
}

} // namespace trainstone
