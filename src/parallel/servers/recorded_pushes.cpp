#include "parallel/servers/recorded_pushes.hpp"

#include "core/error.hpp"

#include <cstddef>
#include <utility>

namespace trainstone {

RecordedPushes recorded_pushes(ServerPolicy const& policy, std::vector<ServerAct> const& acts) {
  RecordedPushes recorded{{}, ServerClocks(policy)};
  std::vector<Index> gaps(static_cast<std::size_t>(policy.workers), 0);
  ServerRecord part;
  for (ServerAct const& act : acts) {
    ServerClocks& clocks = recorded.clocks;
    TRAINSTONE_REQUIRE_INPUT(!clocks.is_over(), "servers did more than {} pushes need", policy.pushes);
    if (clocks.is_paused()) clocks.resume();
    bool const is_worker = act.worker >= 0 && act.worker < policy.workers;
    TRAINSTONE_REQUIRE_INPUT(is_worker, "there are {} workers, and no worker {}", policy.workers, act.worker);
    bool const is_legal = act.answers ? clocks.may_answer(act.worker) : !clocks.waits(act.worker);
    TRAINSTONE_REQUIRE_INPUT(is_legal, "after {} pushes, servers {} worker {}, which this training does not allow",
                             clocks.applied(), act.answers ? "answer" : "apply a push of", act.worker);
    part.acts.push_back(act);
    Index& gap = gaps[static_cast<std::size_t>(act.worker)];
    if (act.answers) {
      gap = clocks.answer(act.worker);
      continue;
    }
    Index const clock = clocks.clock(act.worker);
    part.pushes.push_back({.worker = act.worker, .clock = clock, .staleness = clocks.apply(act.worker), .gap = gap});
    if (clocks.is_paused()) recorded.parts.push_back(std::exchange(part, {}));
  }
  TRAINSTONE_REQUIRE_INPUT(part.acts.empty(), "servers did not pause after {} pushes", recorded.clocks.applied());
  return recorded;
}

} // namespace trainstone
