#pragma once

// Units of work: embed, block 0 .. L-1, head. A unit reads parameter groups and completes their gradients; the step
// loop runs forward through the units in order and backward in reverse, and asks the engine at every border.

#include "core/error.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace trainstone {

enum class UnitKind { embed, block, head };

struct Unit {
  UnitKind kind;
  std::int64_t block = -1; ///< for UnitKind::block
  bool operator==(Unit const&) const = default;
};

/// "embed", "block 3", "head"
std::string to_string(Unit unit);

/// embed, block 0 .. layers-1, head
std::vector<Unit> units(std::int64_t layers);

/// The group whose parameters the unit reads: root for embed and head (embed's backward reads none).
std::int64_t group_read_by(Unit unit);

} // namespace trainstone
