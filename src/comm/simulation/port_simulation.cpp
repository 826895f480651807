#include "comm/simulation/port_simulation.hpp"

#include "comm/counters.hpp"
#include "comm/simulation/playback.hpp"
#include "core/error.hpp"

#include <algorithm>
#include <compare>
#include <functional>
#include <map>
#include <queue>
#include <tuple>
#include <unordered_map>

namespace trainstone::Impl {

namespace {

/// Ends that differ by less came about by adding up the same times in another order: they are one moment.
constexpr double relative_resolution = 1e-12;

/// In which order messages get the ports: by their places in their sender's and in their receiver's round.
struct Turn {
  std::size_t send_place;
  std::size_t receive_place;
  std::size_t message;
  auto operator<=>(Turn const&) const = default;
};

struct Message {
  Rank sender = 0;
  Rank receiver = 0;
  Turn turn{};
  double ready = 0; // both have posted
  double seconds = 0;
  double end = 0;
  bool started = false;
};

/// Messages that wait for a port, by turns. They mostly come and go in this order, and mostly there is one.
class Queue {
public:
  void insert(Turn const& turn) {
    if (size() == 0) clear();
    m_turns.insert(std::upper_bound(first_place(), m_turns.cend(), turn), turn);
  }
  void erase(Turn const& turn) {
    auto const found = std::lower_bound(first_place(), m_turns.cend(), turn);
    if (found == first_place())
      ++m_first;
    else
      m_turns.erase(found);
  }
  std::size_t size() const { return m_turns.size() - m_first; }
  /// The first one; null if there is none.
  Turn const* first() const { return size() == 0 ? nullptr : &m_turns[m_first]; }
  /// The first one behind `turn`, which may have gone.
  Turn const* after(Turn const& turn) const {
    auto const found = std::upper_bound(first_place(), m_turns.cend(), turn);
    return found == m_turns.cend() ? nullptr : &*found;
  }

private:
  std::vector<Turn>::const_iterator first_place() const {
    return m_turns.cbegin() + static_cast<std::ptrdiff_t>(m_first);
  }
  void clear() {
    m_turns.clear();
    m_first = 0;
  }

  std::vector<Turn> m_turns;
  std::size_t m_first = 0;
};

/// One direction of a rank's network connection.
struct Ports {
  int free = 0;
  double last_release = 0;
  Queue queue;
};

struct RankState {
  std::size_t round = 0;
  std::size_t open_messages = 0;
  double begin = 0; // of the round
  double end = 0;   // of what is known of the round
  bool touched = false;
  Ports send;
  Ports receive;
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

struct Channel { // halves that wait for the other one, all sends or all receives
  Half oldest{};
  bool sends = false;
  std::vector<Half> others;
  std::size_t first_other = 0;
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

class Simulation {
public:
  Simulation(TimedSchedules const& timed, Rank ranks, Motion motion)
      : m_timed(timed), m_motion(motion), m_ranks(timed.ranks.size()), m_groups(ranks / played()) {
    for (std::size_t rank = 0; rank < m_ranks.size(); ++rank) {
      m_ranks[rank].round = timed.ranks[rank].first_round;
      m_ranks[rank].send.free = m_ranks[rank].receive.free = timed.ports;
    }
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
  Rank played() const { return static_cast<Rank>(m_ranks.size()); }
  RankState& at(Rank rank) { return m_ranks[static_cast<std::size_t>(rank)]; }
  TimedRank const& timed(Rank rank) const { return m_timed.ranks[static_cast<std::size_t>(rank)]; }
  void touch(Rank rank) {
    if (at(rank).touched) return;
    at(rank).touched = true;
    m_touched.push_back(rank);
  }

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
    auto const [entry, is_new] =
        m_channels.try_emplace({sends ? half.rank : peer, sends ? peer : half.rank, distance(message)});
    Channel& channel = entry->second;
    if (is_new) {
      channel.oldest = half;
      channel.sends = sends;
    } else if (channel.sends == sends) {
      channel.others.push_back(half);
    } else {
      Half const oldest = channel.oldest;
      if (channel.first_other < channel.others.size())
        channel.oldest = channel.others[channel.first_other++];
      else
        m_channels.erase(entry); // most channels are used once
      enqueue(sends ? half : oldest, sends ? oldest : half);
    }
  }

  void enqueue(Half const& send, Half const& receive) {
    std::size_t const number = m_unused.empty() ? m_messages.size() : m_unused.back();
    if (m_unused.empty())
      m_messages.emplace_back();
    else
      m_unused.pop_back();
    Message& message = m_messages[number];
    message = {.sender = send.rank,
               .receiver = receive.rank,
               .turn = {send.place, receive.place, number},
               .ready = std::max(at(send.rank).begin, at(receive.rank).begin),
               .seconds = m_timed.messages[send.message].seconds};
    at(send.rank).send.queue.insert(message.turn);
    at(receive.rank).receive.queue.insert(message.turn);
    touch(send.rank);
    touch(receive.rank);
  }

  void end_message(std::size_t number) {
    Message const& message = m_messages[number];
    m_unused.push_back(number);
    for (Ports* const ports : {&at(message.sender).send, &at(message.receiver).receive}) {
      ++ports->free;
      ports->last_release = message.end;
    }
    for (Rank const rank : {message.sender, message.receiver}) {
      RankState& state = at(rank);
      touch(rank);
      state.end = std::max(state.end, message.end);
      if (--state.open_messages > 0) continue;
      state.end += m_timed.rounds[state.round].late_seconds;
      m_events.push({state.end, Event::round_end, static_cast<std::size_t>(rank)});
    }
  }

  // --- ports

  /// A message that is next in the queue of free ports.
  struct Candidate {
    Turn turn;
    Ports* ports;
    bool operator>(Candidate const& other) const { return turn > other.turn; }
  };
  using Candidates = std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>>;

  static void add_next(Ports& ports, Turn const* next, Candidates& candidates) {
    if (ports.free > 0 && next) candidates.push({*next, &ports});
  }

  bool ports_are_free(Message const& message) {
    return at(message.sender).send.free > 0 && at(message.receiver).receive.free > 0;
  }

  /// Whether no other message waits for either of its ports.
  bool is_alone(Message const& message) {
    return at(message.sender).send.queue.size() == 1 && at(message.receiver).receive.queue.size() == 1;
  }

  /// Gives free ports to waiting messages, in the order of their turns.
  void start_messages() {
    Candidates candidates;
    for (Rank const rank : m_touched) {
      RankState& state = at(rank);
      state.touched = false;
      for (Ports* const ports : {&state.send, &state.receive}) {
        Turn const* const first = ports->queue.first();
        if (!first) continue;
        Message& message = m_messages[first->message];
        if (!is_alone(message))
          add_next(*ports, first, candidates);
        else if (ports_are_free(message))
          start(message);
      }
    }
    m_touched.clear();
    while (!candidates.empty()) {
      Candidate const next = candidates.top();
      candidates.pop();
      Message& message = m_messages[next.turn.message];
      if (!message.started && ports_are_free(message)) start(message);
      add_next(*next.ports, next.ports->queue.after(next.turn), candidates);
    }
  }

  void start(Message& message) {
    message.started = true;
    double start = message.ready;
    for (Ports* const ports : {&at(message.sender).send, &at(message.receiver).receive}) {
      --ports->free;
      ports->queue.erase(message.turn);
      start = std::max(start, ports->last_release);
    }
    message.end = start + message.seconds;
    m_events.push({message.end, Event::message_end, message.turn.message});
  }

  TimedSchedules const& m_timed;
  Motion m_motion;
  std::vector<RankState> m_ranks;
  Rank m_groups; // all ranks are so many times those that are played
  std::vector<Message> m_messages;
  std::vector<std::size_t> m_unused; // messages that are over
  std::unordered_map<ChannelKey, Channel, ChannelHash> m_channels;
  std::map<Rank, Barrier> m_barriers; // by a node's first rank
  std::priority_queue<Event, std::vector<Event>, std::greater<>> m_events;
  std::vector<Rank> m_touched; // a message came or a port became free there
  std::size_t m_finished = 0;
  double m_last_end = 0;
};

} // namespace

PortSimulation::PortSimulation(MachineModel const& machine, Topology const& topology, std::size_t element_bytes)
    : m_machine(machine),
      m_topology(topology),
      m_element_bytes(element_bytes),
      m_timed{{}, {}, {}, machine.node_barrier, machine.ports} {
  TRAINSTONE_REQUIRE(machine.ports >= 1, "a machine with {} ports per rank", machine.ports);
}

void PortSimulation::add(Schedule const& schedule) {
  auto const bytes_per_element = static_cast<double>(m_element_bytes);
  std::size_t const first_round = m_timed.rounds.size();
  for (Round const& round : schedule.rounds) {
    TimedRound timed{0, 0, m_timed.messages.size(), 0, false};
    std::size_t const early = early_moves(round);
    for (std::size_t i = 0; i < round.size(); ++i) {
      Move const& move = round[i];
      if (move.action == Action::node_barrier) timed.node_barrier = true;
      if (move.is_local()) (i < early ? timed.early_seconds : timed.late_seconds) += local_seconds(schedule, move);
      if (!move.is_message()) continue;
      double const bytes = static_cast<double>(move.size()) * bytes_per_element;
      m_timed.messages.push_back(
          {m_machine.of(m_topology.link(schedule.rank, move.peer))(bytes), move.peer, move.action == Action::send});
    }
    timed.last_message = m_timed.messages.size();
    m_timed.rounds.push_back(timed);
  }
  Rank const first_neighbour = schedule.neighbours.empty() ? schedule.rank : schedule.neighbours.front();
  m_timed.ranks.push_back({first_round, m_timed.rounds.size(), first_neighbour, schedule.neighbours.size()});
}

std::optional<double> PortSimulation::run(Motion motion) const {
  auto const played = static_cast<Rank>(m_timed.ranks.size());
  TRAINSTONE_REQUIRE(played >= 1 && m_topology.ranks() % played == 0, "{} schedules for {} ranks", played,
                     m_topology.ranks());
  return Simulation(m_timed, m_topology.ranks(), motion).run();
}

double PortSimulation::local_seconds(Schedule const& schedule, Move const& move) const {
  if (move.is_shared()) {
    auto const touched = static_cast<double>(shared_bytes(move, schedule, m_element_bytes));
    return move.action == Action::copy ? m_machine.fetch(touched) : m_machine.combine(touched);
  }
  Index const parts = move.action == Action::combine ? combined_parts(move, schedule) : 2;
  double const bytes = static_cast<double>(move.size()) * static_cast<double>(m_element_bytes);
  return move.action == Action::copy ? m_machine.copy(bytes) : m_machine.reduce(static_cast<double>(parts - 1) * bytes);
}

} // namespace trainstone::Impl
