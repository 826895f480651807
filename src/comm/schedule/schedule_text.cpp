#include "comm/schedule/schedule_text.hpp"

#include <fmt/format.h>

namespace trainstone {

std::string describe(Slice const& slice) {
  std::string text = fmt::format("{} [{}, {})", to_string(slice.buffer), slice.range.begin, slice.range.end);
  if (slice.owner == every_neighbour) return text + " of all neighbours";
  return slice.owner == own_memory ? text : fmt::format("{} of rank {}", text, slice.owner);
}

std::string describe(Move const& move) {
  switch (move.action) {
  case Action::send: return fmt::format("send of {} to rank {}", describe(move.from), move.peer);
  case Action::receive: return fmt::format("receive of {} from rank {}", describe(move.to), move.peer);
  case Action::node_barrier: return "node barrier";
  case Action::reduce:
  case Action::copy:
  case Action::push:
  case Action::combine: break;
  }
  return fmt::format("{} of {} into {}", to_string(move.action), describe(move.from), describe(move.to));
}

} // namespace trainstone
