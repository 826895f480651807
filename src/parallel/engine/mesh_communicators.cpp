#include "parallel/engine/mesh_communicators.hpp"

#include <utility>

namespace trainstone {

MeshCommunicators::MeshCommunicators(Communicator const& world, Mesh const& mesh) {
  for (Axis const axis : axes)
    if (is_data_axis(axis) || mesh.size(axis) > 1)
      m_lines[static_cast<std::size_t>(axis)].emplace(world.split(mesh.colour(axis, world.rank())));
  if (mesh.sharers() * mesh.pipeline > 1) m_model.emplace(world.split(mesh.data_index(world.rank())));
}

std::optional<Communicator> MeshCommunicators::split(StagePair const& stages) {
  Communicator const& line = of(Axis::pipeline);
  bool const is_in = line.rank() == stages.lower || line.rank() == stages.upper;
  Communicator part = line.split(is_in ? 0 : 1 + line.rank());
  return is_in ? std::optional<Communicator>(std::move(part)) : std::nullopt;
}

} // namespace trainstone
