#pragma once

// Groups of ranks. Owns a duplicated MPI communicator, on which errors return and are thrown, its tags, and the map
// of ranks to nodes. MPI itself stays behind comm/mpi.hpp.

#include "comm/partition.hpp"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace trainstone {

namespace Impl {
struct CommunicatorHandle;
}

/// Which ranks share a node: same host name and same boot (containers may share one of the two).
struct NodeMap {
  int count = 0;
  std::vector<int> node_of_rank;       ///< numbered from 0 in the order of first appearance
  std::vector<std::string> host_names; ///< per node
};

/// Numbers the distinct names. \param[in] host_names, boot_ids per rank
NodeMap make_node_map(std::vector<std::string> const& host_names, std::vector<std::string> const& boot_ids);

/// A group of ranks with a message space of its own. Move-only; creating one is collective.
class Communicator {
public:
  /// All ranks of the program.
  static Communicator world();

  Communicator(Communicator&& other) noexcept;
  Communicator& operator=(Communicator&& other) noexcept;
  ~Communicator();

  Rank rank() const { return m_rank; }
  Rank size() const { return m_size; }
  NodeMap const& nodes() const { return m_nodes; }
  /// Ranks of this group on this rank's node.
  Rank node_size() const;

  /// The ranks that give the same colour, ordered by rank. Collective; the colour is not negative.
  Communicator split(int colour) const;
  /// The first `ranks` ranks; nothing on the others. Collective over all.
  std::optional<Communicator> first(Rank ranks) const;

  /// The tag of the next collective: from a sequence that advances on all ranks alike, so that messages of different
  /// collectives never mix.
  int next_tag();

  Impl::CommunicatorHandle const& handle() const { return *m_handle; }

private:
  explicit Communicator(std::unique_ptr<Impl::CommunicatorHandle> handle);

  std::unique_ptr<Impl::CommunicatorHandle> m_handle;
  Rank m_rank = 0;
  Rank m_size = 1;
  NodeMap m_nodes;
  int m_largest_tag = 0;
  int m_tag = 0;
};

} // namespace trainstone
