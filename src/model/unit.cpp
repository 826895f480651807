#include "model/unit.hpp"

namespace trainstone {

std::string to_string(Unit unit) {
  switch (unit.kind) {
  case UnitKind::embed: return "embed";
  case UnitKind::block: return fmt::format("block {}", unit.block);
  case UnitKind::head: return "head";
  }
  TRAINSTONE_REQUIRE(false, "no unit kind {}", static_cast<int>(unit.kind));
}

std::vector<Unit> units(std::int64_t layers) {
  std::vector<Unit> all{{UnitKind::embed}};
  for (std::int64_t block = 0; block < layers; ++block) all.push_back({UnitKind::block, block});
  all.push_back({UnitKind::head});
  return all;
}

std::int64_t group_read_by(Unit unit) { return unit.kind == UnitKind::block ? unit.block + 1 : 0; }

} // namespace trainstone
