#pragma once

// Collectives as data. Owns the vocabulary of schedules: what one rank does, round after round, to take part in a
// collective. Plain values: a generator makes them (registry.hpp), the simulator proves and prices them
// (simulator.hpp), an Execution runs them on MPI (execution.hpp). Counts elements, not bytes; knows no type.
// What each collective means is in problem.hpp.
//
// Within a round
//   - all sends and receives are posted together; none may write what another one reads or writes;
//   - reduces, combines and copies listed before the first message run while the messages are under way and may not
//     touch what these read or write (beyond reading together); the others run when all messages are complete, one
//     after the other in the listed order;
//   - a node barrier is the only move of its round.
// Between two ranks messages match in the order in which they are listed. No round is empty, and no range, but for the
// messages of collectives without data (has_data()), which carry nothing.
//
// Shared memory: a slice may lie in the memory of a neighbour, a rank of the same node (Schedule::neighbours). What one
// rank writes there is visible to the others after the next node barrier, and only node barriers order such accesses.

#include "comm/schedule/partition.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace trainstone {

enum class Collective {
  all_reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  reduce,
  gather,
  scatter,
  all_to_all,
  barrier,
  server_push,
  server_pull,
  send_receive,
  send,
  copy,
  signal_wait,
};

enum class Algorithm {
  naive,
  whole_ring,
  main_device,
  ring,
  bidirectional_ring,
  segmented_ring,
  tree,
  pipelined_tree,
  butterfly,
  rabenseifner,
  circulant,
  ordered,
  hierarchical,
  shared,
  shared_copy,
  shared_mailbox,
  shared_push,
  direct,
  recursive,
  bruck,
  binomial,
  scatter_all_gather,
  linear,
  pairwise,
  dissemination,
};

inline constexpr std::array collectives{
    Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather,  Collective::broadcast,
    Collective::reduce,     Collective::gather,         Collective::scatter,     Collective::all_to_all,
    Collective::barrier,    Collective::server_push,    Collective::server_pull, Collective::send_receive,
    Collective::send,       Collective::copy,           Collective::signal_wait,
};
inline constexpr std::array algorithms{
    Algorithm::naive,
    Algorithm::whole_ring,
    Algorithm::main_device,
    Algorithm::ring,
    Algorithm::bidirectional_ring,
    Algorithm::segmented_ring,
    Algorithm::tree,
    Algorithm::pipelined_tree,
    Algorithm::butterfly,
    Algorithm::rabenseifner,
    Algorithm::circulant,
    Algorithm::ordered,
    Algorithm::hierarchical,
    Algorithm::shared,
    Algorithm::shared_copy,
    Algorithm::shared_mailbox,
    Algorithm::shared_push,
    Algorithm::direct,
    Algorithm::recursive,
    Algorithm::bruck,
    Algorithm::binomial,
    Algorithm::scatter_all_gather,
    Algorithm::linear,
    Algorithm::pairwise,
    Algorithm::dissemination,
};

/// As decks, flags and tables write them: the names of the enumerators.
std::string_view to_string(Collective collective);
std::string_view to_string(Algorithm algorithm);

/// Whether a collective has a root, parameter servers, or an operation.
bool has_root(Collective collective);
bool has_servers(Collective collective);
bool adds_up(Collective collective);
/// Whether it moves data: a barrier and a signal do not.
bool has_data(Collective collective);
/// Whether data are two halves: what a rank sends, and where it receives.
bool has_halves(Collective collective);

enum class Action {
  send,
  receive,
  reduce,       ///< to = to + from
  copy,         ///< to = from
  push,         ///< to = from, where `to` is a neighbour's memory that the neighbour reads next
  combine,      ///< to = the sum of equal parts, in the balanced tree over their numbers, rounded once
  node_barrier, ///< nobody goes on before all neighbours have come
};

enum class BufferId {
  data,    ///< the caller's input and output
  scratch, ///< Schedule::scratch_elements, undefined at the start
  mailbox, ///< mailbox_elements beside the rank's flags in the node's memory, undefined at the start
};

/// A rank has a mailbox of its own for every run of a schedule: neighbours may read there, after a node barrier, though
/// the rank has gone on. It writes there only itself; messages never do.
inline constexpr Index mailbox_elements = 125;

std::string_view to_string(Action action);
std::string_view to_string(BufferId buffer);

/// Whose memory a slice lies in, if not a rank's number.
inline constexpr Rank own_memory = -1;
inline constexpr Rank every_neighbour = -2; ///< the same range of all neighbours; of combines only

/// A named range of a named buffer.
struct Slice {
  BufferId buffer = BufferId::data;
  Range range;
  Rank owner = own_memory; ///< or a neighbour's rank

  bool overlaps(Slice const& other) const {
    return owner == other.owner && buffer == other.buffer && range.overlaps(other.range);
  }
  bool operator==(Slice const&) const = default;
};

/// One step of a round: a send reads `from`, a receive writes `to`, the others read `from` and write `to`.
///
/// A combine adds up parts 0, 1, ... of `to.range.size()` elements each, in the balanced binary tree (parts i and i+1
/// for even i first; what has no partner is carried to the next level). The parts lie one after the other in
/// from.range, or, if from.owner is every_neighbour, are the same range of every neighbour, by ascending rank. If
/// to.owner is every_neighbour, the result is written to all of them.
struct Move {
  Action action;
  Rank peer = -1; ///< of sends and receives
  Slice from;
  Slice to;

  static Move send(Rank peer, Slice from) { return {Action::send, peer, from, {}}; }
  static Move receive(Rank peer, Slice to) { return {Action::receive, peer, {}, to}; }
  static Move reduce(Slice from, Slice to) { return {Action::reduce, -1, from, to}; }
  static Move copy(Slice from, Slice to) { return {Action::copy, -1, from, to}; }
  static Move push(Slice from, Slice to) { return {Action::push, -1, from, to}; }
  static Move combine(Slice from, Slice to) { return {Action::combine, -1, from, to}; }
  static Move node_barrier() { return {Action::node_barrier, -1, {}, {}}; }

  bool is_message() const { return action == Action::send || action == Action::receive; }
  /// Works on this rank's own or its node's memory, without waiting.
  bool is_local() const { return !is_message() && action != Action::node_barrier; }
  bool reads() const { return action == Action::send || is_local(); }
  bool writes() const { return action == Action::receive || is_local(); }
  /// Touches memory of the node's shared segment that is not the rank's own.
  bool is_shared() const { return is_local() && (from.owner != own_memory || to.owner != own_memory); }
  /// Writes `to` as `from` is: a copy or a push.
  bool copies() const { return action == Action::copy || action == Action::push; }
  /// Elements sent, received, added to or copied; of a combine: of its result.
  Index size() const { return action == Action::send ? from.range.size() : to.range.size(); }
  bool operator==(Move const&) const = default;
};

using Round = std::vector<Move>;

namespace Impl {
/// How many moves of a round run while its messages are under way: those before the first message.
inline std::size_t early_moves(Round const& round) {
  return static_cast<std::size_t>(std::ranges::find_if(round, &Move::is_message) - round.begin());
}
} // namespace Impl

/// What else ranks must agree on when they run a collective: of the Problem that their schedules solve.
struct Agreement {
  Rank root = 0;
  Rank servers = 0;
  Index segment = 0;
  Fingerprint placement; ///< of the blocks, the ranks' nodes, and whether these share memory

  bool operator==(Agreement const&) const = default;
};

/// One rank's part in a collective.
struct Schedule {
  Collective collective;
  Algorithm algorithm;
  Rank rank = 0;
  Rank ranks = 1;
  Index elements = 0; ///< of `data`, the same on all ranks
  Index scratch_elements = 0;
  std::vector<Round> rounds;
  /// The ranks of this node, this one included, ascending, if a move is shared or a node barrier; else empty.
  std::vector<Rank> neighbours;
  Agreement agreement{}; ///< set by make_schedule

  bool needs_shared_memory() const { return !neighbours.empty(); }
  bool operator==(Schedule const&) const = default;
};

/// How many parts a combine adds up.
inline Index combined_parts(Move const& combine, Schedule const& schedule) {
  return combine.from.owner == every_neighbour ? static_cast<Index>(schedule.neighbours.size())
                                               : combine.from.range.size() / combine.to.range.size();
}

} // namespace trainstone
