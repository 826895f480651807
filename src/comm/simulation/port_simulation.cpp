#include "comm/simulation/port_simulation.hpp"

#include "comm/counters.hpp"
#include "comm/simulation/playback.hpp"
#include "core/error.hpp"

namespace trainstone::Impl {

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
  return play(m_timed, m_topology.ranks(), motion);
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
