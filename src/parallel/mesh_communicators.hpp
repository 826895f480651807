#pragma once

// The communicators of the mesh's two axes, on which the engine's collectives run.

#include "comm/communicator.hpp"
#include "parallel/mesh.hpp"

namespace trainstone {

struct MeshCommunicators {
  /// Collective over `world`.
  MeshCommunicators(Communicator const& world, Mesh const& mesh);
  Communicator& of(Axis axis) { return axis == Axis::shard ? shard : replicas; }

  Communicator shard, replicas;
};

} // namespace trainstone
