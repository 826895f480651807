#pragma once

// Plays the schedules of all ranks of a collective with numbers, in one process and without MPI: what a schedule with a
// mistake makes of data, on any number of ranks. A visitor of the simulator's Playback. Adds up in double.

#include "comm/simulation/playback.hpp"
#include "core/error.hpp"

#include <algorithm>
#include <vector>

namespace trainstone::test {

class NumericRun {
public:
  /// \param[in] data  of every rank at the start
  NumericRun(std::vector<Schedule> const& schedules, std::vector<std::vector<float>> const& data)
      : m_schedules(schedules) {
    for (std::size_t rank = 0; rank < schedules.size(); ++rank)
      m_ranks.push_back({{data[rank].begin(), data[rank].end()}, Values(at(schedules[rank].scratch_elements), 0)});
  }

  /// Data of every rank at the end.
  std::vector<std::vector<float>> run() {
    TRAINSTONE_REQUIRE(Impl::Playback(m_schedules, *this).run().empty(), "ranks wait for ever");
    std::vector<std::vector<float>> all;
    for (Rank rank = 0; rank < static_cast<Rank>(m_ranks.size()); ++rank) {
      Values const& data = buffer(rank, BufferId::data);
      all.emplace_back(data.begin(), data.end());
    }
    return all;
  }

  // --- Playback
  void begin_round(Rank rank, Round const& round) {
    for (std::size_t i = 0; i < Impl::early_moves(round); ++i) run_local_move(rank, round[i]);
  }
  void deliver(Impl::Posted const& send, Impl::Posted const& receive) {
    write(receive.rank, receive.move->to, read(send.rank, send.move->from));
  }
  void pass_barrier(std::vector<Rank> const&) { TRAINSTONE_REQUIRE(false, "shared memory is not played"); }
  void end_round(Rank rank, Round const& round) {
    for (std::size_t i = Impl::early_moves(round); i < round.size(); ++i)
      if (round[i].is_local()) run_local_move(rank, round[i]);
  }

private:
  using Values = std::vector<double>;
  static std::size_t at(Index i) { return static_cast<std::size_t>(i); }
  Values& buffer(Rank rank, BufferId id) {
    return m_ranks[static_cast<std::size_t>(rank)][id == BufferId::data ? 0 : 1];
  }

  Values read(Rank rank, Slice const& slice) {
    Values const& from = buffer(rank, slice.buffer);
    return {from.begin() + slice.range.begin, from.begin() + slice.range.end};
  }
  void write(Rank rank, Slice const& slice, Values const& values) {
    TRAINSTONE_REQUIRE(std::ssize(values) == slice.range.size(), "{} values for {} elements", values.size(),
                       slice.range.size());
    std::ranges::copy(values, buffer(rank, slice.buffer).begin() + slice.range.begin);
  }
  void run_local_move(Rank rank, Move const& move) {
    Values const from = read(rank, move.from);
    Values to(at(move.to.range.size()), 0);
    if (move.action == Action::reduce) to = read(rank, move.to);
    for (std::size_t i = 0; i < from.size(); ++i) { // a combine's parts lie one after the other
      if (move.copies())
        to[i] = from[i];
      else
        to[i % to.size()] += from[i];
    }
    write(rank, move.to, to);
  }

  std::vector<Schedule> const& m_schedules;
  std::vector<std::vector<Values>> m_ranks; ///< data and scratch
};

} // namespace trainstone::test
