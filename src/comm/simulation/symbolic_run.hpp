#pragma once

// The collective with contributions in place of numbers: what every buffer of every rank holds while the schedules are
// played. Owns these buffers, the first thing that goes wrong, and who has heard of whom. A visitor of Playback; for
// the simulator alone.

#include "comm/simulation/playback.hpp"
#include "comm/simulation/simulator.hpp"
#include "comm/simulation/symbolic_buffer.hpp"

#include <functional>

namespace trainstone::Impl {

/// Something that was written to a buffer.
struct Write {
  Rank owner;
  BufferId buffer;
  Range range;
  Pieces pieces;
};

class SymbolicRun {
public:
  /// \param[in] on_write is told all that is written after the start; may be empty
  SymbolicRun(Problem const& problem, std::vector<Schedule> const& schedules,
              std::function<void(Write const&)> on_write = {});

  // --- Playback
  void begin_round(Rank rank, Round const& round);
  void deliver(Posted const& send, Posted const& receive);
  void pass_barrier(std::vector<Rank> const& neighbours);
  void end_round(Rank rank, Round const& round);

  std::optional<Finding> const& first_finding() const { return m_finding; }
  SymbolicBuffer const& data(Rank rank) const { return m_ranks[static_cast<std::size_t>(rank)].data; }
  SumTrees const& trees() const { return m_trees; }
  /// Of barriers: whether `rank` knows at its end that `other` had started.
  bool has_heard(Rank rank, Rank other) const;

private:
  struct State {
    SymbolicBuffer data;
    SymbolicBuffer scratch;
    SymbolicBuffer mailbox;
    std::size_t round;
    std::vector<bool> heard;          // of barriers, by rank
    std::vector<bool> heard_in_round; // what the messages of this round say
  };

  State& state(Rank rank) { return m_ranks[static_cast<std::size_t>(rank)]; }
  SymbolicBuffer& buffer(Rank owner, BufferId buffer);
  std::vector<Rank> owners(Rank rank, Slice const& slice) const;
  void run_local_move(Rank rank, Move const& move);
  Pieces sum_of_parts(Rank rank, Move const& combine);
  Pieces read(Rank rank, std::size_t round, Move const& move, Rank owner, BufferId buffer, Range const& range);
  void write(Rank rank, Slice const& slice, Pieces const& pieces);
  void report(Finding const& found);

  std::vector<Schedule> const& m_schedules;
  std::function<void(Write const&)> m_on_write;
  SumTrees m_trees;
  std::vector<State> m_ranks;
  std::optional<Finding> m_finding;
};

} // namespace trainstone::Impl
