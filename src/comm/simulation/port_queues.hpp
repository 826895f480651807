#pragma once

// Who gets a port next. Owns the ports of all ranks and nodes, and the messages that wait for them: whenever a port of
// everything that a message passes is free, the message goes that comes first in its sender's round, then in its
// receiver's. It passes its sender and its receiver, and both nodes if it goes from one to another and their ports are
// limited.
// For timed_playback.cpp alone, into which it is inlined: in a source file of its own it costs 3 % of a price's time.

#include "comm/schedule/partition.hpp"

#include <algorithm>
#include <compare>
#include <cstddef>
#include <functional>
#include <queue>
#include <vector>

namespace trainstone::Impl {

/// In which order messages get the ports: by their places in their sender's and in their receiver's round.
struct Turn {
  std::size_t send_place;
  std::size_t receive_place;
  std::size_t message;
  auto operator<=>(Turn const&) const = default;
};

/// What both ends have posted.
struct Message {
  Rank sender = 0;
  Rank receiver = 0;
  int sender_node = 0;
  int receiver_node = 0;
  bool between_nodes = false;
  Turn turn{};
  double ready = 0; ///< when the second end posted it
  double seconds = 0;
  double end = 0;
  bool started = false;
};

/// Messages that wait for a port, by turns. They mostly come and go in this order, and mostly there is one.
class TurnQueue {
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

class PortQueues {
public:
  /// \param[in] node_ports  0: nodes have any number
  PortQueues(std::size_t ranks, int ports, std::size_t nodes, int node_ports)
      : m_connections(ranks, {{ports}, {ports}}), m_first_node(node_ports > 0 ? ranks : no_nodes) {
    if (node_ports > 0) m_connections.resize(ranks + nodes, {{node_ports}, {node_ports}});
  }

  /// A message waits for its ports from now on; its turn's number is given here.
  void enqueue(Message const& posted) {
    std::size_t const number = m_unused.empty() ? m_messages.size() : m_unused.back();
    if (m_unused.empty())
      m_messages.emplace_back();
    else
      m_unused.pop_back();
    Message& message = m_messages[number];
    message = posted;
    message.turn.message = number;
    for_each_port(message, [&](Ports& ports) { ports.queue.insert(message.turn); });
    touch(message);
  }

  /// Gives free ports to waiting messages, in the order of their turns. Returns the numbers of those that have started,
  /// until the next call.
  std::vector<std::size_t> const& start_messages() {
    struct Candidate { // a message that is next in the queue of free ports
      Turn turn;
      Ports* ports;
      bool operator>(Candidate const& other) const { return turn > other.turn; }
    };
    std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> candidates;
    auto const add_next = [&](Ports& ports, Turn const* next) {
      if (ports.free > 0 && next) candidates.push({*next, &ports});
    };

    m_started.clear();
    for (std::size_t const place : m_touched) {
      Connection& connection = m_connections[place];
      connection.touched = false;
      for (Ports* const ports : {&connection.send, &connection.receive}) {
        Turn const* const first = ports->queue.first();
        if (!first) continue;
        Message& message = m_messages[first->message];
        if (!is_alone(message))
          add_next(*ports, first);
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
      add_next(*next.ports, next.ports->queue.after(next.turn));
    }
    return m_started;
  }

  /// The ports of a message become free, and its number may be given to another one.
  void end_message(std::size_t number) {
    Message const& message = m_messages[number];
    m_unused.push_back(number);
    for_each_port(message, [&](Ports& ports) {
      ++ports.free;
      ports.last_release = message.end;
    });
    touch(message);
  }

  Message const& operator[](std::size_t number) const { return m_messages[number]; }

private:
  static constexpr std::size_t no_nodes = ~std::size_t{0};

  /// One direction of a rank's or a node's network connection.
  struct Ports {
    int free;
    double last_release = 0;
    TurnQueue queue = {};
  };
  struct Connection {
    Ports send;
    Ports receive;
    bool touched = false;
  };

  bool passes_nodes(Message const& message) const { return message.between_nodes && m_first_node != no_nodes; }
  std::size_t place_of_node(int node) const { return m_first_node + static_cast<std::size_t>(node); }
  template <class Visit>
  void for_each_port(Message const& message, Visit const& visit) {
    visit(m_connections[static_cast<std::size_t>(message.sender)].send);
    visit(m_connections[static_cast<std::size_t>(message.receiver)].receive);
    if (!passes_nodes(message)) return;
    visit(m_connections[place_of_node(message.sender_node)].send);
    visit(m_connections[place_of_node(message.receiver_node)].receive);
  }
  void touch(std::size_t place) {
    Connection& connection = m_connections[place];
    if (connection.touched) return;
    connection.touched = true;
    m_touched.push_back(place);
  }
  void touch(Message const& message) {
    touch(static_cast<std::size_t>(message.sender));
    touch(static_cast<std::size_t>(message.receiver));
    if (!passes_nodes(message)) return;
    touch(place_of_node(message.sender_node));
    touch(place_of_node(message.receiver_node));
  }

  bool ports_are_free(Message const& message) {
    bool free = true;
    for_each_port(message, [&](Ports const& ports) { free = free && ports.free > 0; });
    return free;
  }
  /// Whether no other message waits for any of its ports.
  bool is_alone(Message const& message) {
    bool alone = true;
    for_each_port(message, [&](Ports const& ports) { alone = alone && ports.queue.size() == 1; });
    return alone;
  }

  void start(Message& message) {
    message.started = true;
    double start = message.ready;
    for_each_port(message, [&](Ports& ports) {
      --ports.free;
      ports.queue.erase(message.turn);
      start = std::max(start, ports.last_release);
    });
    message.end = start + message.seconds;
    m_started.push_back(message.turn.message);
  }

  std::vector<Connection> m_connections; // of the ranks, then of the nodes
  std::size_t m_first_node;
  std::vector<Message> m_messages;
  std::vector<std::size_t> m_unused;  // messages that are over
  std::vector<std::size_t> m_touched; // a message came or a port became free there
  std::vector<std::size_t> m_started;
};

} // namespace trainstone::Impl
