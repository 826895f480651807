#pragma once

// What is checked of a training whose workers do not wait for each other, from the record of its servers: pushes, gaps,
// staleness, and what was sent beside pushes. Owns a count of its own of all that follows from the record. Pure.

#include "comm/schedule/counters.hpp"
#include "parallel/servers/push_record.hpp"
#include "parallel/servers/server_clocks.hpp"
#include "train/plan/served_run.hpp"
#include "train/verification/check.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace trainstone {

/// Walks through a record, part by part.
class RecordWalk {
public:
  explicit RecordWalk(Rank workers);

  /// Until a pause, at which every worker gets the parameters.
  void add(ServerRecord const& until_pause);

  Index pushes(Rank worker) const { return at(worker).clock; }
  Index pushes() const { return m_applied; }
  /// Parameters that a worker got without a push before.
  Index refreshes(Rank worker) const { return at(worker).refreshes; }
  Index pauses() const { return m_pauses; }
  Index largest_gap() const { return m_largest_gap; }
  Index largest_staleness() const { return m_largest_staleness; }
  /// Acts that no worker was ready for, and pushes that are not noted as they were: with the wrong worker, clock, gap
  /// or staleness.
  Index wrong() const { return m_wrong; }

private:
  struct State {
    Index clock = 0, gap = 0, applied_at_answer = 0, pulled = 0, refreshes = 0;
    bool computes = false, has_pushed = false;
  };
  State const& at(Rank worker) const { return m_states.at(static_cast<std::size_t>(worker)); }
  void give(State& state);
  void answer(State& state);
  void apply(State& state, AppliedPush const& noted, Rank worker);

  std::vector<State> m_states;
  Index m_applied = 0, m_pauses = 0, m_largest_gap = 0, m_largest_staleness = 0, m_wrong = 0;
};

/// "pushes-applied": each push once, as many as the training needs, as noted. "clock-gap": at every answer at most the
/// threshold. "staleness": of every push at most (W-1)(2s+1). The latter two only where there is a threshold.
std::vector<Check> check_pushes(RecordWalk const& walk, ServerPolicy const& policy);

/// What a rank sends in all, by the record.
struct ServedTraffic {
  Traffic training, control;
};
/// \param[in] record  the whole one, in its parts   \param[in] before  how many of these an earlier run has sent
/// \param[in] validations  of how many global batches
ServedTraffic served_traffic(ResolvedRun const& all, std::vector<ServerRecord> const& record, std::size_t before,
                             std::int64_t validations, Rank rank);

} // namespace trainstone
