#include "parallel/servers/planned_order.hpp"

#include "core/error.hpp"

#include <functional>
#include <queue>
#include <utility>

namespace trainstone {

PlannedOrder planned_order(ServerPolicy const& policy,
                           std::function<ServerTicks(Rank worker, Index clock)> const& ticks,
                           ServerClocks const& start) {
  PlannedOrder order{{}, 0, std::vector<ServerTicks>(static_cast<std::size_t>(policy.workers), 0), start};
  if (order.clocks.is_paused() && !order.clocks.is_over()) order.clocks.resume();
  using Arrival = std::pair<ServerTicks, Rank>;
  std::priority_queue<Arrival, std::vector<Arrival>, std::greater<>> arrivals;
  std::vector<ServerTicks> waits_since(static_cast<std::size_t>(policy.workers), 0);
  auto const waiting = [&](Rank worker, ServerTicks until) {
    order.waiting[static_cast<std::size_t>(worker)] += until - waits_since[static_cast<std::size_t>(worker)];
  };
  auto const answer_all = [&](ServerTicks now) {
    for (Rank worker = 0; worker < policy.workers; ++worker) {
      if (!order.clocks.may_answer(worker)) continue;
      Index const clock = order.clocks.clock(worker);
      ServerTicks const length = ticks(worker, clock);
      TRAINSTONE_REQUIRE(length >= 1, "push {} of worker {} takes {}", clock, worker, length);
      order.clocks.answer(worker);
      order.events.push_back({ServerEvent::Kind::answer, worker, clock, now});
      waiting(worker, now);
      arrivals.emplace(now + length, worker);
    }
  };
  answer_all(0);
  while (!order.clocks.is_over()) {
    ServerTicks const now = arrivals.top().first;
    while (!arrivals.empty() && arrivals.top().first == now) {
      Rank const worker = arrivals.top().second;
      arrivals.pop();
      order.events.push_back({ServerEvent::Kind::apply, worker, order.clocks.clock(worker), now});
      order.clocks.apply(worker);
      waits_since[static_cast<std::size_t>(worker)] = now;
    }
    order.end = now;
    if (order.clocks.is_paused() && !order.clocks.is_over()) order.clocks.resume();
    answer_all(now);
  }
  for (Rank worker = 0; worker < policy.workers; ++worker) waiting(worker, order.end);
  return order;
}

PlannedOrder planned_order(ServerPolicy const& policy,
                           std::function<ServerTicks(Rank worker, Index clock)> const& ticks) {
  return planned_order(policy, ticks, ServerClocks(policy));
}

} // namespace trainstone
