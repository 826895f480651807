#pragma once

// What servers note of the pushes that they apply, and of whom they answer: enough to repeat a training to the bit, and
// to check it. Plain values.

#include "comm/schedule/partition.hpp"
#include "core/index.hpp"

#include <cstdint>
#include <vector>

namespace trainstone {

struct AppliedPush {
  Rank worker = 0;
  Index clock = 0;     ///< of the worker, before it
  Index staleness = 0; ///< pushes of others that were applied since the answer that it was computed from
  Index gap = 0;       ///< of the worker's clock to the least one, at that answer
  double loss = 0;     ///< of the worker's samples: mean over tokens
  double norm = 0;     ///< of the worker's gradient
  double learning_rate = 0;
  double seconds = 0;  ///< of training, when it was applied; pauses do not count
  double computed = 0; ///< s, by the worker, from the answer to the begin of the push
  double waited = 0;   ///< s, by the worker before that answer, since its push before; pauses do not count

  bool operator==(AppliedPush const&) const = default;
};

/// An answer or a push, in the order in which servers handled them.
struct ServerAct {
  bool answers = false; ///< else applies
  Rank worker = 0;

  bool operator==(ServerAct const&) const = default;
};

/// As one whole number, for messages and files: 2 w is the push of worker w, 2 w + 1 the answer to it.
constexpr std::int64_t to_number(ServerAct const& act) { return 2 * std::int64_t{act.worker} + (act.answers ? 1 : 0); }
constexpr ServerAct act_of(std::int64_t number) { return {number % 2 == 1, static_cast<Rank>(number / 2)}; }

struct ServerRecord {
  std::vector<ServerAct> acts;
  std::vector<AppliedPush> pushes;
};

} // namespace trainstone
