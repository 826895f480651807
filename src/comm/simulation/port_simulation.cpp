#include "comm/simulation/port_simulation.hpp"

#include "comm/schedule/counters.hpp"
#include "comm/simulation/playback.hpp"
#include "core/error.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace trainstone::Impl {

namespace {

bool is_exchange(Round const& round) {
  auto const any = [&](Action action) { return std::ranges::find(round, action, &Move::action) != round.end(); };
  return any(Action::send) && any(Action::receive);
}

/// How much of the buffers a rank's moves reach, its own or its neighbours'.
Index touched_elements(Schedule const& schedule) {
  std::array<Range, 3> touched{}; // by buffer: from the first element to the last
  auto const add = [&](Slice const& slice) {
    Range& all = touched[static_cast<std::size_t>(slice.buffer)];
    if (slice.range.empty()) return;
    all = all.empty() ? slice.range : Range{std::min(all.begin, slice.range.begin), std::max(all.end, slice.range.end)};
  };
  Index sum = 0;
  for (Round const& round : schedule.rounds) {
    for (Move const& move : round) {
      if (move.reads()) add(move.from);
      if (move.action == Action::push)
        sum += move.size(); // every neighbour's memory is another one
      else if (move.writes())
        add(move.to);
    }
  }
  for (Range const& range : touched) sum += range.size();
  return sum;
}

} // namespace

PortSimulation::PortSimulation(MachineModel const& machine, Topology const& topology, std::size_t element_bytes,
                               std::vector<int> placement)
    : m_machine(machine),
      m_topology(topology),
      m_element_bytes(element_bytes),
      m_timed{{}, {}, {}, machine.node_barrier, machine.ports, machine.node_ports},
      m_lines{topology.ranks(), std::move(placement)} {
  TRAINSTONE_REQUIRE(machine.ports >= 1 && machine.node_ports >= 0, "a machine with {} ports per rank, {} per node",
                     machine.ports, machine.node_ports);
  TRAINSTONE_REQUIRE(std::ssize(m_lines.nodes) % topology.ranks() == 0, "{} places of lines of {} ranks",
                     m_lines.nodes.size(), topology.ranks());
  if (!m_lines.nodes.empty() || machine.network.kind == Interconnect::Kind::full) return;
  for (Rank rank = 0; rank < topology.ranks(); ++rank) m_lines.nodes.push_back(topology.node_of(rank));
}

void PortSimulation::add(Schedule const& schedule) {
  auto const bytes_per_element = static_cast<double>(m_element_bytes);
  std::size_t const first_round = m_timed.rounds.size();
  double const touched = static_cast<double>(touched_elements(schedule)) * bytes_per_element;
  for (Round const& round : schedule.rounds) {
    TimedRound timed{0, 0, m_timed.messages.size(), 0, false};
    std::size_t const early = early_moves(round);
    auto const& curves = is_exchange(round) ? m_machine.message : m_machine.one_way;
    double overlap = 1;
    for (std::size_t i = 0; i < round.size(); ++i) {
      Move const& move = round[i];
      if (move.action == Action::node_barrier) timed.node_barrier = true;
      if (move.is_local())
        (i < early ? timed.early_seconds : timed.late_seconds) += local_seconds(schedule, move, touched);
      if (!move.is_message()) continue;
      double const bytes = static_cast<double>(move.size()) * bytes_per_element;
      Link const kind = m_topology.link(schedule.rank, move.peer);
      auto const link = static_cast<std::size_t>(kind);
      overlap = std::min(overlap, m_machine.overlap[link]);
      m_timed.messages.push_back({.seconds = seconds_among(curves[link], bytes, touched),
                                  .peer = move.peer,
                                  .sends = move.action == Action::send,
                                  .between_nodes = kind == Link::inter});
      if (m_machine.network.kind != Interconnect::Kind::full)
        m_wire.push_back(bytes * m_machine.of(kind).pieces().back().per_byte);
    }
    timed.late_seconds += (1 - overlap) * timed.early_seconds;
    timed.early_seconds *= overlap;
    timed.last_message = m_timed.messages.size();
    m_timed.rounds.push_back(timed);
  }
  Rank const first_neighbour = schedule.neighbours.empty() ? schedule.rank : schedule.neighbours.front();
  m_timed.ranks.push_back({first_round, m_timed.rounds.size(), first_neighbour, schedule.neighbours.size(),
                           m_topology.node_of(schedule.rank)});
}

std::optional<double> PortSimulation::run(Motion motion) const {
  auto const played = static_cast<Rank>(m_timed.ranks.size());
  TRAINSTONE_REQUIRE(played >= 1 && m_topology.ranks() % played == 0, "{} schedules for {} ranks", played,
                     m_topology.ranks());
  if (m_machine.network.kind == Interconnect::Kind::full) return play(m_timed, m_topology.ranks(), motion);
  TimedSchedules lengthened = m_timed;
  lengthen(lengthened, m_wire, m_machine, m_lines, motion);
  return play(lengthened, m_topology.ranks(), motion);
}

double PortSimulation::local_seconds(Schedule const& schedule, Move const& move, double touched) const {
  if (move.is_shared()) {
    auto const bytes = static_cast<double>(shared_bytes(move, schedule, m_element_bytes));
    if (move.action == Action::push) return seconds_among(m_machine.push, bytes, touched);
    if (move.action == Action::copy) return seconds_among(m_machine.fetch, bytes, touched);
    bool const to_all = move.to.owner == every_neighbour;
    return seconds_among(to_all ? m_machine.combine_to_all : m_machine.combine_to_own, bytes, touched);
  }
  Index const parts = move.action == Action::combine ? combined_parts(move, schedule) : 2;
  double const bytes = static_cast<double>(move.size()) * static_cast<double>(m_element_bytes);
  if (move.action == Action::copy) return seconds_among(m_machine.copy, bytes, touched);
  return seconds_among(m_machine.reduce, static_cast<double>(parts - 1) * bytes, touched);
}

} // namespace trainstone::Impl
