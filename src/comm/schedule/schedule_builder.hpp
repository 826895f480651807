#pragma once

// What generators write schedules with. Owns the schedule in the making: leaves out what is empty, closes rounds, adds
// up scratch. Knows groups: an algorithm written for ranks 0 ... n-1 runs among any members of the communicator, so
// that all-reduces are made of reduce-scatters and all-gathers, folded ones of a core, hierarchical ones of stages.

#include "comm/schedule/problem.hpp"

#include <memory>
#include <utility>
#include <vector>

namespace trainstone {

/// Ranks that run an algorithm among themselves, numbered 0 ... size()-1, and this rank's number.
class Group {
public:
  /// All ranks, in their order.
  static Group all(Rank ranks, Rank rank) { return Group(ranks, rank, nullptr); }
  /// The given ranks, in the given order; `rank` is one of them.
  static Group of(std::vector<Rank> members, Rank rank);

  Rank size() const { return m_size; }
  Rank me() const { return m_me; }
  /// The communicator's rank of member i, taken modulo size(): i may be negative.
  Rank operator[](Rank i) const;

private:
  Group(Rank size, Rank me, std::shared_ptr<std::vector<Rank> const> members)
      : m_size(size), m_me(me), m_members(std::move(members)) {}

  Rank m_size;
  Rank m_me;
  std::shared_ptr<std::vector<Rank> const> m_members; // null: member i is rank i
};

inline Slice data_slice(Range const& range, Rank owner = own_memory) { return {BufferId::data, range, owner}; }
inline Slice scratch_slice(Range const& range, Rank owner = own_memory) { return {BufferId::scratch, range, owner}; }

/// Collects the rounds of one rank. Moves of empty ranges and empty rounds are left out.
class ScheduleBuilder {
public:
  ScheduleBuilder(Problem const& problem, Algorithm algorithm, Rank rank);

  // --- moves of the open round; peers are ranks of the communicator
  void send(Rank peer, Slice const& from);
  void receive(Rank peer, Slice const& to);
  void reduce(Slice const& from, Slice const& to);
  void copy(Slice const& from, Slice const& to);
  void push(Slice const& from, Slice const& to);
  /// See Move. \throws Error unless from is a whole number of parts or of every neighbour
  void combine(Slice const& from, Slice const& to);
  /// A message without elements, of barriers.
  void send_signal(Rank peer);
  void receive_signal(Rank peer);
  void end_round();
  /// A round of its own; closes the open one. The neighbours are those of the problem's topology.
  void node_barrier();

  /// `elements` of scratch that are handed out once, until reuse_scratch().
  Range new_scratch(Index elements);
  /// From here on nothing that lies in scratch is needed any more: the next stage starts from element 0 again.
  void reuse_scratch() { m_scratch_used = 0; }

  Schedule finish();

private:
  Schedule m_schedule;
  std::vector<Rank> m_neighbours;
  Round m_round;
  Index m_scratch_used = 0;
};

} // namespace trainstone
