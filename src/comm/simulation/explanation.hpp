#pragma once

// What every rank holds after every round of an algorithm. Owns the states and messages as plain values, from the same
// symbolic play as the proof; texts and pictures of them are in src/report. Promises: the schedules are without defect.
// Does not show scratch, but what is sent from it and arrives there.
//
// Ranks go through their schedules at their own pace. Round k here is what can happen k-th at the earliest: a message
// one round after both its ends are ready to post it, local moves with the last messages of theirs or, without any, in
// a round of their own, a node barrier one round after the last neighbour has come.

#include "comm/simulation/simulator.hpp"

#include <cstddef>
#include <vector>

namespace trainstone {

/// Consecutive elements that hold the same.
struct Content {
  Index size = 0;
  Index element = 0;       ///< which element of the contributing ranks' data the first one is
  std::vector<Rank> ranks; ///< whose contributions are added up, ascending; empty: undefined

  bool operator==(Content const&) const = default;
};
using Contents = std::vector<Content>;

struct ExplainedMessage {
  Rank from;
  Rank to;
  Slice source;
  Slice target;
  Contents contents;
};

/// A local move or a node barrier.
struct ExplainedMove {
  Rank rank;
  Move move;
};

struct ExplainedRound {
  std::vector<ExplainedMessage> messages;  ///< by receiver
  std::vector<ExplainedMove> moves;        ///< by rank
  std::vector<std::vector<Contents>> held; ///< [rank][place], when the round is over
};

struct Explanation {
  Problem problem;
  Algorithm algorithm;
  /// [rank][place]: how data is shown: the blocks of the partition, of an all-to-all the messages, of a barrier one
  /// place whose content is the ranks that this rank has heard of.
  std::vector<std::vector<Range>> places;
  std::vector<ExplainedRound> rounds; ///< the first one is the start, round k is the k-th
  CollectiveCounts counts;            ///< of elements of one byte

  /// How many ranks contribute to a sum; 1 where nothing is added up.
  Rank contributors() const;
};

/// \throws InputError if the algorithm refuses the problem, or has more than 300 rounds    \throws Error if its
/// schedules have a defect
Explanation explain(Problem const& problem, Algorithm algorithm);

} // namespace trainstone
