#pragma once

// The communicators of the mesh's axes, on which the engine's collectives run.

#include "comm/execution/communicator.hpp"
#include "parallel/plan/mesh.hpp"

#include <array>
#include <optional>

namespace trainstone {

class MeshCommunicators {
public:
  /// Collective over `world`. The axes of data have a communicator even if it is of one rank.
  MeshCommunicators(Communicator const& world, Mesh const& mesh);
  /// This rank's line. \throws std::bad_optional_access if the axis has length 1 and is none of data
  Communicator& of(Axis axis) { return m_lines[static_cast<std::size_t>(axis)].value(); }
  /// Of the ranks that share the model with this one: its tensor group, on all stages, in the order of world. Null: it
  /// has all of the model.
  Communicator* of_model() { return m_model ? &*m_model : nullptr; }
  /// A new communicator of two stages of this rank's line; nothing on other stages. Collective over the line.
  std::optional<Communicator> split(StagePair const& stages);

private:
  std::array<std::optional<Communicator>, axes.size()> m_lines; ///< by axis
  std::optional<Communicator> m_model;
};

} // namespace trainstone
