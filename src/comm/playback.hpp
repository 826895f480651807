#pragma once

// The engine of the simulator: plays the schedules of all ranks against each other, with the executor's rules. Owns
// who waits for whom; what messages carry and cost is the visitor's. For src/comm/simulator*.cpp alone.

#include "comm/schedule.hpp"

#include <cstddef>
#include <deque>
#include <map>
#include <utility>
#include <vector>

namespace trainstone::Impl {

/// A send or receive in its place.
struct Posted {
  Rank rank;
  std::size_t round;
  Move const* move;
};

/// Calls
///   visitor.begin_round(rank)                     when a rank posts the messages of its next round,
///   visitor.deliver(Posted send, Posted receive)  when the two halves of a message have met,
///   visitor.end_round(rank, Round const&)         when all messages of its round are delivered.
/// A rank's calls come in program order. Peers must be valid ranks.
template <class Visitor>
class Playback {
public:
  Playback(std::vector<Schedule> const& schedules, Visitor& visitor)
      : m_schedules(schedules), m_visitor(visitor), m_ranks(schedules.size()) {}

  /// Plays to the end. Returns the messages that never found their other half: none if all ranks got to their end.
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
    std::vector<Posted> unmatched;
    for (auto const& [ranks, channel] : m_channels) {
      unmatched.insert(unmatched.end(), channel.sends.begin(), channel.sends.end());
      unmatched.insert(unmatched.end(), channel.receives.begin(), channel.receives.end());
    }
    return unmatched;
  }

private:
  struct State {
    std::size_t round = 0;
    std::size_t open_messages = 0;
  };
  struct Channel { // from one rank to another
    std::deque<Posted> sends;
    std::deque<Posted> receives;
  };

  Schedule const& schedule(Rank rank) const { return m_schedules[static_cast<std::size_t>(rank)]; }

  void begin_round(Rank rank) {
    State& state = m_ranks[static_cast<std::size_t>(rank)];
    if (state.round == schedule(rank).rounds.size()) return;
    Round const& round = schedule(rank).rounds[state.round];
    m_visitor.begin_round(rank);
    for (Move const& move : round) state.open_messages += move.is_message() ? 1 : 0;
    if (state.open_messages == 0) m_finished_rounds.push_back(rank);
    for (Move const& move : round) {
      if (move.is_message()) post({rank, state.round, &move});
    }
  }

  void post(Posted const& posted) {
    bool const sends = posted.move->action == Action::send;
    Rank const peer = posted.move->peer;
    Channel& channel = m_channels[sends ? std::pair(posted.rank, peer) : std::pair(peer, posted.rank)];
    (sends ? channel.sends : channel.receives).push_back(posted);
    if (channel.sends.empty() || channel.receives.empty()) return;
    Posted const send = channel.sends.front();
    Posted const receive = channel.receives.front();
    channel.sends.pop_front();
    channel.receives.pop_front();
    m_visitor.deliver(send, receive);
    complete_message(send.rank);
    complete_message(receive.rank);
  }

  void complete_message(Rank rank) {
    if (--m_ranks[static_cast<std::size_t>(rank)].open_messages == 0) m_finished_rounds.push_back(rank);
  }

  std::vector<Schedule> const& m_schedules;
  Visitor& m_visitor;
  std::vector<State> m_ranks;
  std::map<std::pair<Rank, Rank>, Channel> m_channels;
  std::deque<Rank> m_finished_rounds; // ranks whose round's messages are all delivered
};

} // namespace trainstone::Impl
