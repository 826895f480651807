#pragma once

// The engine of the simulator: plays the schedules of all ranks against each other, with the executor's rules. Owns
// who waits for whom; what messages carry and cost is the visitor's. For the simulator alone.

#include "comm/schedule/schedule.hpp"
#include "comm/simulation/channels.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <vector>

namespace trainstone::Impl {

/// A move in its place.
struct Posted {
  Rank rank;
  std::size_t round;
  Move const* move;
};

/// Calls
///   visitor.begin_round(rank, Round const&)       when a rank posts the messages of its next round,
///   visitor.deliver(Posted send, Posted receive)  when the two halves of a message have met,
///   visitor.pass_barrier(std::vector<Rank>)       when all neighbours have come to a node barrier,
///   visitor.end_round(rank, Round const&)         when all messages of its round are delivered, or its barrier passed.
/// A rank's calls come in program order. Peers must be valid ranks, node barriers alone in their rounds.
template <class Visitor>
class Playback {
public:
  Playback(std::vector<Schedule> const& schedules, Visitor& visitor)
      : m_schedules(schedules), m_visitor(visitor), m_ranks(schedules.size()) {}

  /// Plays to the end. Returns the messages and barriers that never found their other half: none if all ranks got to
  /// their end.
  std::vector<Posted> run() {
    for (std::size_t rank = 0; rank < m_ranks.size(); ++rank) begin_round(static_cast<Rank>(rank));
    while (!m_finished_rounds.empty()) {
      Rank const rank = m_finished_rounds.front();
      m_finished_rounds.pop_front();
      State& state = m_ranks[static_cast<std::size_t>(rank)];
      m_visitor.end_round(rank, schedule(rank).rounds[state.round]);
      ++state.round;
      begin_round(rank);
    }
    std::vector<Posted> waiting = m_channels.waiting();
    for (auto const& [node, come] : m_barriers) waiting.insert(waiting.end(), come.begin(), come.end());
    return waiting;
  }

private:
  struct State {
    std::size_t round = 0;
    std::size_t open_messages = 0;
  };

  Schedule const& schedule(Rank rank) const { return m_schedules[static_cast<std::size_t>(rank)]; }

  void begin_round(Rank rank) {
    State& state = m_ranks[static_cast<std::size_t>(rank)];
    if (state.round == schedule(rank).rounds.size()) return;
    Round const& round = schedule(rank).rounds[state.round];
    m_visitor.begin_round(rank, round);
    if (!round.empty() && round.front().action == Action::node_barrier) {
      come_to_barrier({rank, state.round, &round.front()});
      return;
    }
    for (Move const& move : round) state.open_messages += move.is_message() ? 1 : 0;
    if (state.open_messages == 0) m_finished_rounds.push_back(rank);
    for (Move const& move : round) {
      if (move.is_message()) post({rank, state.round, &move});
    }
  }

  void come_to_barrier(Posted const& posted) {
    std::vector<Rank> const& neighbours = schedule(posted.rank).neighbours;
    std::vector<Posted>& come = m_barriers[neighbours.front()];
    come.push_back(posted);
    if (come.size() < neighbours.size()) return;
    m_visitor.pass_barrier(neighbours);
    for (Posted const& each : come) m_finished_rounds.push_back(each.rank);
    come.clear();
  }

  void post(Posted const& posted) {
    bool const sends = posted.move->action == Action::send;
    Rank const from = sends ? posted.rank : posted.move->peer;
    Rank const to = sends ? posted.move->peer : posted.rank;
    auto const channel = static_cast<std::uint64_t>(from) * m_ranks.size() + static_cast<std::uint64_t>(to);
    auto const other = m_channels.meet(channel, sends, posted);
    if (!other) return;
    m_visitor.deliver(sends ? posted : *other, sends ? *other : posted);
    complete_message(from);
    complete_message(to);
  }

  void complete_message(Rank rank) {
    if (--m_ranks[static_cast<std::size_t>(rank)].open_messages == 0) m_finished_rounds.push_back(rank);
  }

  std::vector<Schedule> const& m_schedules;
  Visitor& m_visitor;
  std::vector<State> m_ranks;
  Channels<std::uint64_t, Posted> m_channels;     // by sender and receiver
  std::map<Rank, std::vector<Posted>> m_barriers; // by a node's first rank: who has come
  std::deque<Rank> m_finished_rounds;             // ranks whose round's messages are all delivered
};

} // namespace trainstone::Impl
