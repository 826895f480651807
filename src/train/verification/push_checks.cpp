#include "train/verification/push_checks.hpp"

#include "parallel/program/shard_traffic.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

namespace trainstone {

namespace {

constexpr Index numbers_noted_of_push = 10;

Check at_most(std::string name, Index value, Index limit, std::string detail) {
  return {std::move(name), value <= limit, static_cast<double>(value), static_cast<double>(limit), std::move(detail)};
}

} // namespace

RecordWalk::RecordWalk(Rank workers) : m_states(static_cast<std::size_t>(workers)) {}

void RecordWalk::give(State& state) {
  if (state.pulled < m_applied && !state.has_pushed) ++state.refreshes;
  state.pulled = m_applied;
  state.has_pushed = false;
}

void RecordWalk::answer(State& state) {
  if (state.computes) ++m_wrong;
  state.computes = true;
  state.gap = state.clock - std::ranges::min_element(m_states, {}, &State::clock)->clock;
  state.applied_at_answer = m_applied;
  m_largest_gap = std::max(m_largest_gap, state.gap);
  give(state);
}

void RecordWalk::apply(State& state, AppliedPush const& noted, Rank worker) {
  Index const staleness = m_applied - state.applied_at_answer;
  bool const is_right = state.computes && noted.worker == worker && noted.clock == state.clock &&
                        noted.gap == state.gap && noted.staleness == staleness;
  if (!is_right) ++m_wrong;
  m_largest_staleness = std::max(m_largest_staleness, staleness);
  state.computes = false;
  state.has_pushed = true;
  ++state.clock;
  ++m_applied;
}

void RecordWalk::add(ServerRecord const& until_pause) {
  std::size_t push = 0;
  for (auto const& [answers, worker] : until_pause.acts) {
    State& state = m_states.at(static_cast<std::size_t>(worker));
    if (answers)
      answer(state);
    else
      apply(state, push < until_pause.pushes.size() ? until_pause.pushes[push++] : AppliedPush{.worker = -1}, worker);
  }
  if (push != until_pause.pushes.size()) ++m_wrong;
  for (State& state : m_states) {
    if (state.computes) ++m_wrong; // its push was not applied
    give(state);
  }
  ++m_pauses;
}

std::vector<Check> check_pushes(RecordWalk const& walk, ServerPolicy const& policy) {
  Index const missing = policy.pushes - walk.pushes();
  auto const wrong = static_cast<double>(walk.wrong() + std::max(missing, -missing));
  std::string by_worker;
  for (Rank worker = 0; worker < policy.workers; ++worker) by_worker += fmt::format(" {}", walk.pushes(worker));
  std::vector<Check> checks{{"pushes-applied", wrong == 0, wrong, 0,
                             fmt::format("{} pushes of {}, each computed from an answer and applied once, by worker:{}",
                                         walk.pushes(), policy.pushes, by_worker)}};
  if (!policy.threshold) return checks;
  checks.push_back(at_most("clock-gap", walk.largest_gap(), *policy.threshold,
                           "pushes by which a worker was ahead of the slowest one, at its answer"));
  checks.push_back(at_most("staleness", walk.largest_staleness(), staleness_bound(policy).value(),
                           "pushes of others between an answer and the push that was computed from it, beside "
                           "(W-1)(2s+1)"));
  return checks;
}

ServedTraffic served_traffic(ResolvedRun const& all, std::vector<ServerRecord> const& record, std::size_t before,
                             std::int64_t validations, Rank rank) {
  Rank const workers = all.mesh.data(), first_server = workers;
  ServedTraffic sent;
  RecordWalk walk(workers);
  for (std::size_t i = 0; i < before; ++i) walk.add(record[i]);
  RecordWalk const earlier = walk;
  for (std::size_t i = before; i < record.size(); ++i) {
    ServerRecord const& part = record[i];
    walk.add(part);
    auto const noted =
        std::ssize(part.acts) + numbers_noted_of_push * std::ssize(part.pushes) + all.topology.ranks(); // requests
    sent.control += control_traffic_of(2, all.topology, rank) + control_traffic_of(noted, all.topology, rank);
    if (rank == first_server) sent.control += event_traffic(all);
  }
  for (Rank worker = 0; worker < workers; ++worker) {
    if (rank != worker && !all.mesh.serves(rank)) continue;
    RunPlan const plan = plan_with_servers(all, worker, rank);
    auto const pushes = static_cast<std::uint64_t>(walk.pushes(worker) - earlier.pushes(worker)),
               refreshes = static_cast<std::uint64_t>(walk.refreshes(worker) - earlier.refreshes(worker));
    sent.training += pushes * plan.step_sent() + refreshes * plan.update_sent;
    sent.control += pushes * plan.step_control();
    if (rank == first_server) // of pauses and refreshes
      sent.control += (static_cast<std::uint64_t>(walk.pauses() - earlier.pauses()) + refreshes) *
                      word_traffic(all.topology, first_server, worker);
  }
  sent.control += static_cast<std::uint64_t>(validations) *
                  control_traffic_of(all.config.batch.global / all.config.batch.micro, all.topology, rank);
  return sent;
}

} // namespace trainstone
