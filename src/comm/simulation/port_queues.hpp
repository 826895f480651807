#pragma once

// Who gets a port next. Owns the ports of all ranks and the messages that wait for them: whenever a port of the sender
// and one of the receiver are free, the message goes that comes first in its sender's round, then in its receiver's.
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
  PortQueues(std::size_t ranks, int ports) : m_connections(ranks, {{ports}, {ports}}) {}

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
    sending(message).queue.insert(message.turn);
    receiving(message).queue.insert(message.turn);
    touch(message.sender);
    touch(message.receiver);
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
    for (Rank const rank : m_touched) {
      Connection& connection = m_connections[static_cast<std::size_t>(rank)];
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
    for (Ports* const ports : {&sending(message), &receiving(message)}) {
      ++ports->free;
      ports->last_release = message.end;
    }
    touch(message.sender);
    touch(message.receiver);
  }

  Message const& operator[](std::size_t number) const { return m_messages[number]; }

private:
  /// One direction of a rank's network connection.
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

  Ports& sending(Message const& message) { return m_connections[static_cast<std::size_t>(message.sender)].send; }
  Ports& receiving(Message const& message) { return m_connections[static_cast<std::size_t>(message.receiver)].receive; }
  void touch(Rank rank) {
    Connection& connection = m_connections[static_cast<std::size_t>(rank)];
    if (connection.touched) return;
    connection.touched = true;
    m_touched.push_back(rank);
  }

  bool ports_are_free(Message const& message) { return sending(message).free > 0 && receiving(message).free > 0; }
  /// Whether no other message waits for either of its ports.
  bool is_alone(Message const& message) {
    return sending(message).queue.size() == 1 && receiving(message).queue.size() == 1;
  }

  void start(Message& message) {
    message.started = true;
    double start = message.ready;
    for (Ports* const ports : {&sending(message), &receiving(message)}) {
      --ports->free;
      ports->queue.erase(message.turn);
      start = std::max(start, ports->last_release);
    }
    message.end = start + message.seconds;
    m_started.push_back(message.turn.message);
  }

  std::vector<Connection> m_connections;
  std::vector<Message> m_messages;
  std::vector<std::size_t> m_unused; // messages that are over
  std::vector<Rank> m_touched;       // a message came or a port became free there
  std::vector<std::size_t> m_started;
};

} // namespace trainstone::Impl
