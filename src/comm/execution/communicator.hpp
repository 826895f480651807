#pragma once

// Groups of ranks. Owns a duplicated MPI communicator, on which errors return and are thrown, its tags, the map of
// ranks to nodes, and the order in which its collectives are called. MPI itself stays behind comm/execution/mpi.hpp.

#include "comm/schedule/fingerprint.hpp"
#include "comm/schedule/message_buffers.hpp"
#include "comm/schedule/topology.hpp"
#include "core/views.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace trainstone {

struct EmulatedNetwork;

namespace Impl {
class CallComparison;
struct CommunicatorHandle;
} // namespace Impl

/// Which ranks share a node: same host name and same boot (containers may share one of the two).
struct NodeMap {
  int count = 0;
  std::vector<int> node_of_rank;       ///< numbered from 0 in the order of first appearance
  std::vector<std::string> host_names; ///< per node
};

/// Numbers the distinct names. \param[in] host_names, boot_ids per rank
NodeMap make_node_map(std::vector<std::string> const& host_names, std::vector<std::string> const& boot_ids);

/// The description on which ranks must agree when they call a collective: "all_reduce ring sum float32 of 1000
/// elements". It is made once and announced with every call.
class CollectiveCall {
public:
  explicit CollectiveCall(std::string text);
  std::string const& text() const { return m_text; }
  std::uint64_t hash() const { return m_fingerprint.value(); }

private:
  std::string m_text;
  Fingerprint m_fingerprint;
};

enum class OrderCheck { no, yes };

/// A tag that no other collective of the communicator gets while this object lives; the communicator outlives it.
class HeldTag {
public:
  explicit HeldTag(Impl::CommunicatorHandle& handle);
  HeldTag(HeldTag&& other) noexcept;
  HeldTag& operator=(HeldTag&&) = delete;
  ~HeldTag();
  int value() const { return m_tag; }

private:
  Impl::CommunicatorHandle* m_handle; ///< null: moved from
  int m_tag = 0;
};

/// A tag that executions share, and whose turn it is: they give MPI their messages in the order in which they were
/// started. So the n-th send meets the n-th receive, whatever each of them waits for before.
class SharedTag {
public:
  explicit SharedTag(HeldTag tag) : m_tag(std::move(tag)) {}
  int value() const { return m_tag.value(); }

  std::uint64_t take_turn() { return m_taken++; }
  bool is_turn(std::uint64_t turn) const { return turn == m_current; }
  /// The execution whose turn it is has given MPI all its messages.
  void end_turn() { ++m_current; }

private:
  HeldTag m_tag;
  std::uint64_t m_taken = 0, m_current = 0;
};

/// A group of ranks with a message space of its own. Move-only; creating one is collective.
class Communicator {
public:
  /// All ranks of the program. For studies and tests on one machine the ranks can be taken to sit on several nodes,
  /// in blocks. \throws InputError unless 0 (none emulated) <= emulated_nodes <= ranks
  static Communicator world(int emulated_nodes = 0);

  Communicator(Communicator&& other) noexcept;
  Communicator& operator=(Communicator&& other) noexcept;
  ~Communicator();

  Rank rank() const { return m_rank; }
  Rank size() const { return m_size; }
  NodeMap const& nodes() const { return m_nodes; }
  Topology const& topology() const { return m_topology; }
  /// Ranks of this group on this rank's node.
  Rank node_size() const;

  /// The ranks that give the same colour, ordered by rank. Collective; the colour is not negative. Emulated nodes stay.
  Communicator split(int colour) const;
  /// The first `ranks` ranks; nothing on the others. Collective over all.
  std::optional<Communicator> first(Rank ranks) const;

  /// The tag of the next collective, so that messages of different collectives never mix. Tags come from a sequence
  /// that advances alike on all ranks. When the sequence starts again, it leaves out tags that are still held. All
  /// ranks take tags and give them back in the same order.
  /// \throws Error if all tags are held
  HeldTag take_tag();
  /// Uses tags 0 ... largest only, so that they come round soon. Collective; for tests.
  void limit_tags(int largest);

  /// Executions that are made from now on send as this network would. Communicators split from this one inherit the
  /// setting, and share the ports with it. Neither counts nor results change. MPI's own collectives are not slowed
  /// down. Algorithms that move data in shared memory are refused. A network that is not slow ends the emulation.
  /// Collective. \throws Error if a time is negative or not finite
  void emulate_network(EmulatedNetwork const& network);

  /// Executions that are made from now on give MPI the memory itself, or copies of their messages. Communicators split
  /// from this one inherit the setting. Before the first call MPI gets host memory. Neither bytes nor results change.
  /// The call is not collective, but all ranks must use the same buffers, because they cut messages alike.
  /// \param[in] exec  of the executions; copies overlap with its work
  void use_buffers(MessageBuffers buffers, ExecutionSpace const& exec);
  MessageBuffers buffers() const;
  /// Whether kernels reach the memory of this node's other ranks in a SharedSegment, for algorithms that move data
  /// there. On hosts they do. On devices they do once it is proved (buffers_start.hpp) and said here, alike on all
  /// ranks. Communicators split from this one inherit the setting.
  void use_neighbours_memory(bool is_proved);
  bool reaches_neighbours() const;

  /// From now on every call of a collective is compared between all ranks before it sends or waits for anything. For
  /// debugging: it costs an exchange per call. Communicators split from this one inherit the setting. Collective.
  void check_order(OrderCheck check);
  /// The first act of every collective, with its description. Does not wait.
  /// \return what the collective must complete before it goes on; null: nothing, the order is not checked
  std::unique_ptr<Impl::CallComparison> announce(CollectiveCall const& call) const;
  /// As announce(), for collectives that cannot advance step by step: waits until all ranks have called.
  /// \throws CollectiveError on all ranks if the order is checked and they call different collectives
  void announce_and_compare(CollectiveCall const& call) const;
  /// The fingerprint of all calls so far, in order. It is equal on all ranks if they made the same calls.
  std::uint64_t order_hash() const;

  /// Call this after an error: collectives are unfinished, and other ranks may never come. The destructor then waits
  /// for nothing.
  void give_up() noexcept;

  Impl::CommunicatorHandle const& handle() const { return *m_handle; }

private:
  Communicator(std::unique_ptr<Impl::CommunicatorHandle> handle, std::string const& emulated_node);
  Communicator part(std::unique_ptr<Impl::CommunicatorHandle> handle) const;

  std::unique_ptr<Impl::CommunicatorHandle> m_handle;
  Rank m_rank = 0;
  Rank m_size = 1;
  NodeMap m_nodes;
  Topology m_topology = Topology::one_node(1);
  std::string m_emulated_node; ///< empty: none
};

} // namespace trainstone
