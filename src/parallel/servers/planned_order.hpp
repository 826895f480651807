#pragma once

// The order in which servers apply pushes and answer workers, from how long every computation takes: a training in
// virtual time. A pure function, so that all servers, however many, and every repetition have the same order.

#include "parallel/servers/server_clocks.hpp"

#include <cstdint>
#include <functional>
#include <vector>

namespace trainstone {

/// Of virtual time.
using ServerTicks = std::int64_t;

struct ServerEvent {
  enum class Kind { apply, answer };
  Kind kind;
  Rank worker;
  Index clock; ///< of the worker, before the event
  ServerTicks time;

  bool operator==(ServerEvent const&) const = default;
};

struct PlannedOrder {
  std::vector<ServerEvent> events;
  ServerTicks end = 0;              ///< of the last push
  std::vector<ServerTicks> waiting; ///< by worker, until the end
  ServerClocks clocks;              ///< as they are then
};

/// \param[in] ticks  that worker w takes from its answer to the application of its push number c; at least 1
/// \param[in] start  in a pause, or of a training that begins
/// Of events of one time, pushes come first, then in the order of workers. A pause takes no time.
/// Complexity: O(pushes x (workers + log workers))
PlannedOrder planned_order(ServerPolicy const& policy,
                           std::function<ServerTicks(Rank worker, Index clock)> const& ticks,
                           ServerClocks const& start);
/// From the begin.
PlannedOrder planned_order(ServerPolicy const& policy,
                           std::function<ServerTicks(Rank worker, Index clock)> const& ticks);

} // namespace trainstone
