#pragma once

// Collectives as data. Owns the vocabulary of schedules: what one rank does, round after round, to take part in a
// collective. Plain values: a generator makes them (registry.hpp), the simulator proves and prices them
// (simulator.hpp), an Execution runs them on MPI (execution.hpp). Counts elements, not bytes; knows no type.
//
// A collective works in place on the buffer `data`, which has the same number of elements on every rank.
// Within a round
//   - all sends and receives are posted together; none may write what another one reads or writes;
//   - when all of them are complete, reduces and copies follow, one after the other in the listed order.
// Between two ranks messages match in the order in which they are listed. No range is empty.

#include "comm/partition.hpp"

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace trainstone {

enum class Collective {
  all_reduce, ///< every rank's data ends as the element-wise reduction of all ranks' data
};
enum class Algorithm { ring };

inline constexpr std::array<Collective, 1> collectives{Collective::all_reduce};
inline constexpr std::array<Algorithm, 1> algorithms{Algorithm::ring};

std::string_view to_string(Collective collective);
std::string_view to_string(Algorithm algorithm);

enum class Action { send, receive, reduce, copy };
enum class BufferId {
  data,    ///< the caller's input and output
  scratch, ///< Schedule::scratch_elements, undefined at the start
};

std::string_view to_string(Action action);
std::string_view to_string(BufferId buffer);

/// A named range of a named buffer.
struct Slice {
  BufferId buffer = BufferId::data;
  Range range;

  bool overlaps(Slice const& other) const { return buffer == other.buffer && range.overlaps(other.range); }
  bool operator==(Slice const&) const = default;
};

/// One step of a round: a send reads `from`, a receive writes `to`, a copy does to = from and a reduce to = to + from.
struct Move {
  Action action;
  Rank peer = -1; ///< of sends and receives
  Slice from;
  Slice to;

  static Move send(Rank peer, Slice from) { return {Action::send, peer, from, {}}; }
  static Move receive(Rank peer, Slice to) { return {Action::receive, peer, {}, to}; }
  static Move reduce(Slice from, Slice to) { return {Action::reduce, -1, from, to}; }
  static Move copy(Slice from, Slice to) { return {Action::copy, -1, from, to}; }

  bool is_message() const { return action == Action::send || action == Action::receive; }
  bool reads() const { return action != Action::receive; }
  bool writes() const { return action != Action::send; }
  /// Elements moved.
  Index size() const { return reads() ? from.range.size() : to.range.size(); }
  bool operator==(Move const&) const = default;
};

using Round = std::vector<Move>;

/// One rank's part in a collective.
struct Schedule {
  Collective collective;
  Algorithm algorithm;
  Rank rank = 0;
  Rank ranks = 1;
  Index elements = 0; ///< of `data`
  Index scratch_elements = 0;
  std::vector<Round> rounds;

  bool operator==(Schedule const&) const = default;
};

} // namespace trainstone
