#pragma once

// The clocks of workers that push to parameter servers without waiting for each other. Owns the one rule that says
// which worker may begin its next computation, and the record of what followed from it: gaps between clocks, and
// staleness. A plain value without messages; the planned order, and servers, use the same rule. Source: More Effective
// Distributed ML via a Stale Synchronous Parallel Parameter Server, 2013.

#include "comm/schedule/partition.hpp"
#include "core/index.hpp"

#include <optional>
#include <vector>

namespace trainstone {

/// A worker's clock is the number of its pushes that were applied. A worker whose clock is c is answered, which lets it
/// compute its next push, when c - (the least clock) <= threshold, and only if the training needs another push before
/// its next pause. So no push is computed that is not applied.
struct ServerPolicy {
  Rank workers = 1;
  std::optional<Index> threshold = {}; ///< s, of clocks; 0: rounds; none: asynchronous
  Index pushes = 1;                    ///< of all workers, after which the training ends
  Index pause_every = 0;               ///< pushes, after which all workers wait until the training goes on; 0: never
};

/// The most updates by other workers that can lie between an answer and the application of the push that was computed
/// from it: (W-1)(2s+1). None: there is no bound. At the answer to a worker of clock c every other clock is at least
/// c - s. Until its push is applied its own clock is c, so that no other worker is answered at more than c + s, and no
/// clock gets beyond c + s + 1: each of the others makes at most 2s + 1 pushes meanwhile.
std::optional<Index> staleness_bound(ServerPolicy const& policy);

class ServerClocks {
public:
  /// No worker was answered yet. \throws Error unless there are workers and pushes, and the threshold is not negative
  explicit ServerClocks(ServerPolicy const& policy);

  /// Whether a worker that waits may be answered now.
  bool may_answer(Rank worker) const;
  /// \throws Error unless may_answer()
  /// \return the worker's gap to the least clock
  Index answer(Rank worker);
  /// The push that the worker has computed from its last answer. \throws Error unless it was answered since its last
  /// one
  /// \return its staleness
  Index apply(Rank worker);

  bool is_over() const { return m_applied == m_policy.pushes; }
  /// All pushes until the next pause, or the end, were applied: nobody computes.
  bool is_paused() const { return m_applied == m_limit; }
  /// The training goes on after a pause. \throws Error unless is_paused() and not is_over()
  void resume();
  bool waits(Rank worker) const { return !m_states[static_cast<std::size_t>(worker)].computes; }
  Index clock(Rank worker) const { return m_states[static_cast<std::size_t>(worker)].clock; }
  Index applied() const { return m_applied; }
  /// The largest gap to the least clock at an answer.
  Index largest_gap() const { return m_largest_gap; }
  /// Number of pushes by their staleness.
  std::vector<Index> const& pushes_by_staleness() const { return m_pushes_by_staleness; }

private:
  struct State {
    Index clock = 0;
    Index others_at_answer = 0; ///< pushes of others that were applied before the last answer
    bool computes = false;
  };
  Index least_clock() const;

  ServerPolicy m_policy;
  std::vector<State> m_states;
  Index m_applied = 0, m_granted = 0, m_largest_gap = 0;
  Index m_limit = 0; ///< pushes at the next pause, or the end
  std::vector<Index> m_pushes_by_staleness;
};

} // namespace trainstone
