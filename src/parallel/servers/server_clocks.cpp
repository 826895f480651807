#include "parallel/servers/server_clocks.hpp"

#include "core/error.hpp"

#include <algorithm>

namespace trainstone {

std::optional<Index> staleness_bound(ServerPolicy const& policy) {
  if (!policy.threshold) return std::nullopt;
  return (policy.workers - 1) * (2 * *policy.threshold + 1);
}

ServerClocks::ServerClocks(ServerPolicy const& policy) : m_policy(policy) {
  TRAINSTONE_REQUIRE(policy.workers >= 1 && policy.pushes >= 1 && policy.threshold.value_or(0) >= 0 &&
                         policy.pause_every >= 0,
                     "{} workers, {} pushes, a threshold of {}, a pause every {} pushes", policy.workers, policy.pushes,
                     policy.threshold.value_or(0), policy.pause_every);
  m_limit = policy.pause_every > 0 ? std::min(policy.pause_every, policy.pushes) : policy.pushes;
  m_states.resize(static_cast<std::size_t>(policy.workers));
}

Index ServerClocks::least_clock() const { return std::ranges::min_element(m_states, {}, &State::clock)->clock; }

bool ServerClocks::may_answer(Rank worker) const {
  if (!waits(worker) || m_granted == m_limit) return false;
  return !m_policy.threshold || clock(worker) - least_clock() <= *m_policy.threshold;
}

void ServerClocks::resume() {
  TRAINSTONE_REQUIRE(is_paused() && !is_over(),
                     "{} pushes were applied: there is a pause after {}, and the end after {}", m_applied, m_limit,
                     m_policy.pushes);
  m_limit = std::min(m_limit + m_policy.pause_every, m_policy.pushes);
}

Index ServerClocks::answer(Rank worker) {
  TRAINSTONE_REQUIRE(may_answer(worker), "worker {} of clock {} may not be answered: the least clock is {}", worker,
                     clock(worker), least_clock());
  State& state = m_states[static_cast<std::size_t>(worker)];
  state.computes = true;
  state.others_at_answer = m_applied - state.clock;
  ++m_granted;
  Index const gap = state.clock - least_clock();
  m_largest_gap = std::max(m_largest_gap, gap);
  return gap;
}

Index ServerClocks::apply(Rank worker) {
  State& state = m_states[static_cast<std::size_t>(worker)];
  TRAINSTONE_REQUIRE(state.computes, "worker {} pushes, and was not answered since its last push", worker);
  Index const others = m_applied - state.clock, staleness = others - state.others_at_answer;
  state.computes = false;
  ++state.clock;
  ++m_applied;
  if (std::ssize(m_pushes_by_staleness) <= staleness)
    m_pushes_by_staleness.resize(static_cast<std::size_t>(staleness) + 1);
  ++m_pushes_by_staleness[static_cast<std::size_t>(staleness)];
  return staleness;
}

} // namespace trainstone
