#include "comm/simulator.hpp"

#include "comm/playback.hpp"
#include "core/error.hpp"

#include <algorithm>

namespace trainstone {

namespace {

enum class Ports { one, unlimited };

/// When every rank begins and ends its rounds.
class Timeline {
public:
  Timeline(std::size_t ranks, std::size_t element_bytes, Machine const& machine, Ports ports)
      : m_ranks(ranks), m_element_bytes(static_cast<double>(element_bytes)), m_machine(machine), m_ports(ports) {}

  void begin_round(Rank rank) { at(rank).begin = at(rank).end; }

  void deliver(Impl::Posted const& send, Impl::Posted const& receive) {
    Clock& sender = at(send.rank);
    Clock& receiver = at(receive.rank);
    double start = std::max(sender.begin, receiver.begin);
    if (m_ports == Ports::one) start = std::max({start, sender.send_port_free, receiver.receive_port_free});
    double const bytes = static_cast<double>(send.move->size()) * m_element_bytes;
    double const end = start + m_machine.alpha + m_machine.beta * bytes;
    sender.send_port_free = receiver.receive_port_free = end;
    sender.end = std::max(sender.end, end);
    receiver.end = std::max(receiver.end, end);
  }

  void end_round(Rank rank, Round const& round) {
    for (Move const& move : round) {
      if (move.action != Action::reduce) continue;
      at(rank).end += m_machine.gamma * static_cast<double>(move.size()) * m_element_bytes;
    }
  }

  double end() const { return std::ranges::max_element(m_ranks, {}, &Clock::end)->end; }

private:
  struct Clock {
    double begin = 0; // of the current round
    double end = 0;   // of the current round, as far as known
    double send_port_free = 0;
    double receive_port_free = 0;
  };
  Clock& at(Rank rank) { return m_ranks[static_cast<std::size_t>(rank)]; }

  std::vector<Clock> m_ranks;
  double m_element_bytes;
  Machine m_machine;
  Ports m_ports;
};

double play_on(std::vector<Schedule> const& schedules, std::size_t element_bytes, Machine const& machine, Ports ports) {
  TRAINSTONE_REQUIRE(!schedules.empty(), "a collective needs at least one rank");
  Timeline timeline(schedules.size(), element_bytes, machine, ports);
  auto const unmatched = Impl::Playback(schedules, timeline).run();
  TRAINSTONE_REQUIRE(unmatched.empty(), "{} messages of {} {} wait for ever", unmatched.size(),
                     to_string(schedules[0].collective), to_string(schedules[0].algorithm));
  return timeline.end();
}

/// Rounds that depend on each other are the seconds on a machine where every message takes one.
Index longest_chain(std::vector<Schedule> const& schedules) {
  return static_cast<Index>(play_on(schedules, 1, {.alpha = 1, .beta = 0, .gamma = 0}, Ports::unlimited));
}

} // namespace

CollectiveCounts count(std::vector<Schedule> const& schedules, std::size_t element_bytes, Index longest_message) {
  CollectiveCounts counts{.rounds = longest_chain(schedules), .busiest = {}, .total = {}};
  for (Schedule const& schedule : schedules) {
    Traffic const traffic = predict_traffic(schedule, element_bytes, longest_message);
    counts.busiest.messages = std::max(counts.busiest.messages, traffic.messages);
    counts.busiest.bytes = std::max(counts.busiest.bytes, traffic.bytes);
    counts.busiest.reduced = std::max(counts.busiest.reduced, traffic.reduced);
    counts.total += traffic;
  }
  return counts;
}

double price(std::vector<Schedule> const& schedules, std::size_t element_bytes, Machine const& machine) {
  return play_on(schedules, element_bytes, machine, Ports::one);
}

} // namespace trainstone
