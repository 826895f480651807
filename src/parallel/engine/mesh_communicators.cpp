#include "parallel/engine/mesh_communicators.hpp"

namespace trainstone {

MeshCommunicators::MeshCommunicators(Communicator const& world, Mesh const& mesh) {
  for (Axis const axis : axes)
    if (is_data_axis(axis) || mesh.size(axis) > 1)
      m_lines[static_cast<std::size_t>(axis)].emplace(world.split(mesh.colour(axis, world.rank())));
}

} // namespace trainstone
