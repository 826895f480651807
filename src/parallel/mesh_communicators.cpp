#include "parallel/mesh_communicators.hpp"

namespace trainstone {

MeshCommunicators::MeshCommunicators(Communicator const& world, Mesh const& mesh)
    : shard(world.split(mesh.colour(Axis::shard, world.rank()))),
      replicas(world.split(mesh.colour(Axis::replicate, world.rank()))) {}

} // namespace trainstone
