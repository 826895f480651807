#include "comm/simulation/timed_playback.hpp"

#include "comm/simulation/channels.hpp"
#include "comm/simulation/port_queues.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <queue>
#include <tuple>

namespace trainstone::Impl {

namespace {

/// Ends that differ by less came about by adding up the same times in another order: they are one moment.
constexpr double relative_resolution = 1e-12;

struct RankState {
  std::size_t round = 0;
  std::size_t open_messages = 0;
  double begin = 0; // of the round
  double end = 0;   // of what is known of the round
};

struct Event {
  double time;
  enum Kind { message_end, round_end } kind;
  std::size_t index; // message or rank
  /// Those of one moment in the order of memory: with many ranks this saves cache misses, and changes nothing else.
  bool operator>(Event const& other) const { return std::tie(time, index) > std::tie(other.time, other.index); }
};

struct Half { // of a message
  Rank rank;
  std::size_t message; // in TimedSchedules
  std::size_t place;
};

/// From one rank to another one, `distance` tells apart the ranks that one rank is played for.
struct ChannelKey {
  Rank from;
  Rank to;
  Rank distance;
  bool operator==(ChannelKey const&) const = default;
};
struct ChannelHash {
  std::size_t operator()(ChannelKey const& key) const {
    auto const mix = [](std::size_t seed, Rank value) {
      return (seed ^ static_cast<std::size_t>(value)) * 0x9e3779b97f4a7c15u;
    };
    std::size_t const hash = mix(mix(mix(0, key.from), key.to), key.distance);
    return hash ^ (hash >> 32);
  }
};

struct Barrier {
  std::vector<Rank> come;
  double last = 0;
};

class TimedPlayback {
public:
  TimedPlayback(TimedSchedules const& timed, Rank ranks, Motion motion)
      : m_timed(timed),
        m_motion(motion),
        m_ranks(timed.ranks.size()),
        m_groups(ranks / played()),
        m_ports(timed.ranks.size(), timed.ports, nodes(timed), timed.node_ports) {
    for (std::size_t rank = 0; rank < m_ranks.size(); ++rank) m_ranks[rank].round = timed.ranks[rank].first_round;
  }

  std::optional<double> run() {
    for (Rank rank = 0; rank < played(); ++rank) begin_round(rank, 0);
    start_messages();
    while (!m_events.empty()) {
      double const moment = m_events.top().time * (1 + relative_resolution);
      while (!m_events.empty() && m_events.top().time <= moment) {
        Event const event = m_events.top();
        m_events.pop();
        if (event.kind == Event::message_end)
          end_message(event.index);
        else
          end_round(static_cast<Rank>(event.index), event.time);
      }
      start_messages();
    }
    return m_finished == m_ranks.size() ? std::optional(m_last_end) : std::nullopt;
  }

private:
  static std::size_t nodes(TimedSchedules const& timed) {
    int last = 0;
    for (TimedRank const& rank : timed.ranks) last = std::max(last, rank.node);
    return static_cast<std::size_t>(last) + 1;
  }
  Rank played() const { return static_cast<Rank>(m_ranks.size()); }
  RankState& at(Rank rank) { return m_ranks[static_cast<std::size_t>(rank)]; }
  TimedRank const& timed(Rank rank) const { return m_timed.ranks[static_cast<std::size_t>(rank)]; }
  // --- rounds

  void begin_round(Rank rank, double now) {
    RankState& state = at(rank);
    state.begin = now;
    if (state.round == timed(rank).last_round) {
      ++m_finished;
      m_last_end = std::max(m_last_end, now);
      return;
    }
    TimedRound const& round = m_timed.rounds[state.round];
    if (round.node_barrier) return come_to_barrier(rank, now);
    state.end = now + round.early_seconds;
    state.open_messages = round.last_message - round.first_message;
    if (state.open_messages == 0) m_events.push({state.end, Event::round_end, static_cast<std::size_t>(rank)});
    for (std::size_t i = round.first_message; i < round.last_message; ++i) post({rank, i, i - round.first_message});
  }

  void end_round(Rank rank, double now) {
    ++at(rank).round;
    begin_round(rank, now);
  }

  void come_to_barrier(Rank rank, double now) {
    Barrier& barrier = m_barriers[timed(rank).first_neighbour % played()];
    barrier.come.push_back(rank);
    barrier.last = std::max(barrier.last, now);
    // neighbours that are not played come when those come that are played for them
    if (barrier.come.size() < std::min(timed(rank).neighbours, m_ranks.size())) return;
    for (Rank const each : barrier.come)
      m_events.push({barrier.last + m_timed.barrier_seconds, Event::round_end, static_cast<std::size_t>(each)});
    barrier = {};
  }

  // --- messages

  /// How far from a sender among ranks 0 ... k-1 the receiver is, in units of k.
  Rank distance(TimedMessage const& message) const {
    Rank const groups_away = message.peer / played();
    if (message.sends || m_motion == Motion::exchange) return groups_away;
    return (m_groups - groups_away) % m_groups;
  }

  void post(Half const& half) {
    TimedMessage const& message = m_timed.messages[half.message];
    bool const sends = message.sends;
    Rank const peer = message.peer % played();
    ChannelKey const channel{sends ? half.rank : peer, sends ? peer : half.rank, distance(message)};
    if (auto const other = m_channels.meet(channel, sends, half)) enqueue(sends ? half : *other, sends ? *other : half);
  }

  void enqueue(Half const& send, Half const& receive) {
    m_ports.enqueue(
        {.sender = send.rank,
         .receiver = receive.rank,
         .sender_node = timed(send.rank).node,
         .receiver_node = timed(receive.rank).node,
         .between_nodes = m_timed.messages[send.message].between_nodes,
         .turn = {send.place, receive.place, 0},
         .ready = std::max(at(send.rank).begin, at(receive.rank).begin),
         .seconds = std::max(m_timed.messages[send.message].seconds, m_timed.messages[receive.message].seconds)});
  }

  void start_messages() {
    for (std::size_t const number : m_ports.start_messages())
      m_events.push({m_ports[number].end, Event::message_end, number});
  }

  void end_message(std::size_t number) {
    Message const& message = m_ports[number];
    m_ports.end_message(number);
    for (Rank const rank : {message.sender, message.receiver}) {
      RankState& state = at(rank);
      state.end = std::max(state.end, message.end);
      if (--state.open_messages > 0) continue;
      state.end += m_timed.rounds[state.round].late_seconds;
      m_events.push({state.end, Event::round_end, static_cast<std::size_t>(rank)});
    }
  }

  TimedSchedules const& m_timed;
  Motion m_motion;
  std::vector<RankState> m_ranks;
  Rank m_groups; // all ranks are so many times those that are played
  PortQueues m_ports;
  Channels<ChannelKey, Half, ChannelHash> m_channels;
  std::map<Rank, Barrier> m_barriers; // by a node's first rank
  std::priority_queue<Event, std::vector<Event>, std::greater<>> m_events;
  std::size_t m_finished = 0;
  double m_last_end = 0;
};

} // namespace

std::optional<double> play(TimedSchedules const& timed, Rank ranks, Motion motion) {
  return TimedPlayback(timed, ranks, motion).run();
}

} // namespace trainstone::Impl
