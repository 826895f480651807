#include "comm/simulation/contention.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace trainstone::Impl {

namespace {

using Ends = std::pair<Rank, Rank>; ///< a sender that is played, and its receiver
using Factors = std::map<Ends, double>;

class Rounds {
public:
  Rounds(TimedSchedules& timed, std::vector<double> const& wire, MachineModel const& machine, PlacedLines const& lines,
         Motion motion)
      : m_timed(timed),
        m_wire(wire),
        m_network(machine.network),
        m_lines(lines),
        m_motion(motion),
        m_played(static_cast<Rank>(timed.ranks.size())),
        m_ports(machine.ports),
        m_node_ports(machine.node_ports) {
    double const per_byte = machine.of(Link::inter).pieces().back().per_byte;
    m_rate = per_byte > 0 ? 1 / per_byte : 0;
  }

  void lengthen_all() {
    if (m_rate == 0) return; // messages take no time
    std::size_t most = 0;
    for (TimedRank const& rank : m_timed.ranks) most = std::max(most, rank.last_round - rank.first_round);
    std::map<std::vector<Ends>, Factors> known;
    for (std::size_t round = 0; round < most; ++round) {
      std::vector<Ends> const sent = sent_in(round);
      if (sent.empty()) continue;
      auto const [found, is_new] = known.try_emplace(sent);
      if (is_new) found->second = factors_of(sent);
      lengthen(round, found->second);
    }
  }

private:
  template <class Visit>
  void for_each_message(std::size_t round, Visit const& visit) {
    for (Rank rank = 0; rank < m_played; ++rank) {
      TimedRank const& one = m_timed.ranks[static_cast<std::size_t>(rank)];
      if (one.first_round + round >= one.last_round) continue;
      TimedRound const& all = m_timed.rounds[one.first_round + round];
      for (std::size_t i = all.first_message; i < all.last_message; ++i)
        if (m_timed.messages[i].between_nodes) visit(rank, i);
    }
  }

  std::vector<Ends> sent_in(std::size_t round) {
    std::vector<Ends> sent;
    for_each_message(round, [&](Rank rank, std::size_t i) {
      if (m_timed.messages[i].sends) sent.emplace_back(rank, m_timed.messages[i].peer);
    });
    return sent;
  }

  /// The rank that does in another group what a rank does in the first one.
  Rank in_group(Rank rank, Rank group) const {
    Rank const distance = group * m_played;
    return m_motion == Motion::exchange ? rank ^ distance : (rank + distance) % m_lines.ranks;
  }

  /// Calls visit(the sender that is played and its receiver, flow) for every message of all ranks. Messages of many
  /// ranks to many others have no room all at once.
  template <class Visit>
  void for_each_flow(std::vector<Ends> const& sent, Visit const& visit) const {
    std::size_t const lines = m_lines.nodes.size() / static_cast<std::size_t>(m_lines.ranks);
    Rank const groups = m_lines.ranks / m_played;
    std::map<Rank, int> of_sender, of_receiver; // messages that share a rank's ports
    for (auto const& [sender, receiver] : sent) ++of_sender[sender], ++of_receiver[receiver % m_played];
    for (Ends const& ends : sent) {
      auto const [sender, receiver] = ends;
      int const most = std::max({m_ports, of_sender.at(sender), of_receiver.at(receiver % m_played)});
      double const rate = m_rate * m_ports / most;
      for (std::size_t line = 0; line < lines; ++line)
        for (Rank group = 0; group < groups; ++group)
          visit(ends, NodeFlow{node_of(line, in_group(sender, group)), node_of(line, in_group(receiver, group)), rate});
    }
  }

  Factors factors_of(std::vector<Ends> const& sent) const {
    std::map<std::int64_t, double> out, in; // of nodes
    if (m_node_ports > 0)
      for_each_flow(sent, [&](Ends const&, NodeFlow const& flow) {
        out[flow.from] += flow.rate;
        in[flow.to] += flow.rate;
      });
    auto const through_ports = [&](NodeFlow flow) { // a node sends and receives no more than its ports pass
      if (m_node_ports > 0)
        flow.rate *= std::min(1.0, m_node_ports * m_rate / std::max(out.at(flow.from), in.at(flow.to)));
      return flow;
    };
    CutLoads loads(m_network);
    for_each_flow(sent, [&](Ends const&, NodeFlow const& flow) { loads.add(through_ports(flow)); });
    Factors factors;
    for_each_flow(sent, [&](Ends const& ends, NodeFlow const& flow) {
      double& factor = factors.try_emplace(ends, 1).first->second;
      factor = std::max(factor, loads.slowdown(through_ports(flow)));
    });
    return factors;
  }

  std::int64_t node_of(std::size_t line, Rank rank) const {
    return m_lines.nodes[line * static_cast<std::size_t>(m_lines.ranks) + static_cast<std::size_t>(rank)];
  }

  /// Both ends of a message, because the longer one counts.
  void lengthen(std::size_t round, Factors const& factors) {
    for_each_message(round, [&](Rank rank, std::size_t i) {
      TimedMessage& message = m_timed.messages[i];
      Rank const group = message.peer / m_played, groups = m_lines.ranks / m_played;
      Rank const back = m_motion == Motion::exchange ? group : (groups - group) % groups;
      Ends const ends = message.sends ? Ends{rank, message.peer} : Ends{message.peer % m_played, in_group(rank, back)};
      if (auto const found = factors.find(ends); found != factors.end())
        message.seconds += (found->second - 1) * m_wire[i];
    });
  }

  TimedSchedules& m_timed;
  std::vector<double> const& m_wire;
  Interconnect const& m_network;
  PlacedLines const& m_lines;
  Motion m_motion;
  Rank m_played;
  int m_ports, m_node_ports;
  double m_rate = 0; ///< of a message alone
};

} // namespace

void lengthen(TimedSchedules& timed, std::vector<double> const& wire, MachineModel const& machine,
              PlacedLines const& lines, Motion motion) {
  Rounds(timed, wire, machine, lines, motion).lengthen_all();
}

} // namespace trainstone::Impl
