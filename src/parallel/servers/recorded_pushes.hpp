#pragma once

// A training whose workers do not wait for each other, as far as the acts of its servers tell it: clocks, and what was
// pushed between pauses. So a training goes on from its acts. Owns no rule: ServerClocks has it. Pure.

#include "parallel/servers/push_record.hpp"
#include "parallel/servers/server_clocks.hpp"

#include <vector>

namespace trainstone {

struct RecordedPushes {
  std::vector<ServerRecord> parts; ///< from pause to pause; pushes without losses, norms and times
  ServerClocks clocks;             ///< at the end of the acts
};

/// \throws InputError if the policy does not allow the acts, or if they do not end in a pause
RecordedPushes recorded_pushes(ServerPolicy const& policy, std::vector<ServerAct> const& acts);

} // namespace trainstone
