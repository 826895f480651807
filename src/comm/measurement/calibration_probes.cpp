#include "comm/measurement/calibration_probes.hpp"

#include "core/error.hpp"

#include <algorithm>

namespace trainstone {

namespace {

std::size_t largest_node(Topology const& topology) {
  std::size_t largest = 0;
  for (int node = 0; node < topology.nodes(); ++node) largest = std::max(largest, topology.members(node).size());
  return largest;
}

std::size_t place_in_node(Topology const& topology, Rank rank) {
  std::vector<Rank> const& neighbours = topology.neighbours(rank);
  return static_cast<std::size_t>(std::ranges::find(neighbours, rank) - neighbours.begin());
}

/// Writes the rounds of one probe; the data is a row of parts of `elements` each.
struct Writer {
  Topology const& topology;
  Rank rank;
  Index elements;
  std::vector<Round> rounds = {};

  Slice part(std::size_t i, Rank owner = own_memory) const {
    auto const begin = static_cast<Index>(i) * elements;
    return {BufferId::data, {begin, begin + elements}, owner};
  }
  Slice scratch() const { return {BufferId::scratch, {0, elements}}; }

  void exchange(Rank peer) { rounds.push_back({Move::receive(peer, part(1)), Move::send(peer, part(0))}); }
  /// What was received is added to what was sent.
  void exchange_and_reduce(Rank peer) {
    rounds.push_back({Move::receive(peer, scratch()), Move::send(peer, part(0)), Move::reduce(scratch(), part(0))});
  }
  /// Something else is added up while messages are under way.
  void exchange_while_reducing(Rank peer) {
    rounds.push_back({Move::reduce(part(0), scratch()), Move::receive(peer, part(1)), Move::send(peer, part(0))});
  }
  /// There and back, each what its sender has written.
  void one_way(Rank peer) {
    Round const send{Move::send(peer, part(0))};
    Round const receive{Move::receive(peer, part(1))};
    bool const first = rank < peer;
    rounds.push_back(first ? send : receive);
    rounds.push_back(first ? receive : send);
  }
  void copies() {
    rounds.push_back({Move::copy(part(0), part(1))});
    rounds.push_back({Move::copy(part(1), part(0))});
  }
  void reductions() {
    rounds.push_back({Move::reduce(part(0), part(1))});
    rounds.push_back({Move::reduce(part(1), part(0))});
  }
  void barriers(int count) {
    for (int i = 0; i < count; ++i) rounds.push_back({Move::node_barrier()});
  }
  /// Of a combine.
  Index slice_elements() const { return std::max<Index>(1, elements / static_cast<Index>(largest_node(topology))); }
  Index data_elements() const {
    return std::max(2 * elements, slice_elements() * static_cast<Index>(largest_node(topology)));
  }
  void in_shared_memory(Move const& move) {
    barriers(1);
    rounds.push_back({move});
    barriers(1);
  }
  void combine(Rank target) {
    Index const begin = static_cast<Index>(place_in_node(topology, rank)) * slice_elements();
    Range const slice{begin, begin + slice_elements()};
    in_shared_memory(Move::combine({BufferId::data, slice, every_neighbour}, {BufferId::data, slice, target}));
  }
  Rank next_neighbour() const {
    std::vector<Rank> const& neighbours = topology.neighbours(rank);
    return neighbours[(place_in_node(topology, rank) + 1) % neighbours.size()];
  }
  void fetch() { in_shared_memory(Move::copy(part(0, next_neighbour()), part(1))); }
  void push() { in_shared_memory(Move::push(part(0), part(1, next_neighbour()))); }
};

/// The probes whose move is between two node barriers.
bool is_between_barriers(Probe probe) {
  return probe == Probe::combine_to_all || probe == Probe::combine_to_own || probe == Probe::fetch ||
         probe == Probe::push;
}

bool uses_shared_memory(Probe probe) { return probe == Probe::node_barrier || is_between_barriers(probe); }

std::optional<Link> link_of(Probe probe) {
  switch (probe) {
  case Probe::exchange_intra:
  case Probe::one_way_intra:
  case Probe::overlap_intra: return Link::intra;
  case Probe::exchange_inter:
  case Probe::one_way_inter:
  case Probe::exchange_inter_alone:
  case Probe::one_way_inter_alone:
  case Probe::overlap_inter: return Link::inter;
  default: return {};
  }
}

bool is_alone(Probe probe) { return probe == Probe::exchange_inter_alone || probe == Probe::one_way_inter_alone; }

bool any_partner(Topology const& topology, Link link) {
  for (Rank rank = 0; rank < topology.ranks(); ++rank)
    if (partner(topology, rank, link)) return true;
  return false;
}

/// The link over which reductions are measured: the one that there is.
Link reduction_link(Topology const& topology) { return any_partner(topology, Link::intra) ? Link::intra : Link::inter; }

} // namespace

std::string_view to_string(Probe probe) {
  switch (probe) {
  case Probe::exchange_intra: return "exchange, intra";
  case Probe::exchange_inter: return "exchange, inter";
  case Probe::one_way_intra: return "one way, intra";
  case Probe::one_way_inter: return "one way, inter";
  case Probe::exchange_inter_alone: return "exchange, inter, one pair";
  case Probe::one_way_inter_alone: return "one way, inter, one pair";
  case Probe::overlap_intra: return "exchange while reducing, intra";
  case Probe::overlap_inter: return "exchange while reducing, inter";
  case Probe::exchange_reduce: return "exchange and reduce";
  case Probe::reduce: return "reduce";
  case Probe::copy: return "copy";
  case Probe::node_barrier: return "node barrier";
  case Probe::combine_to_all: return "combine to all";
  case Probe::combine_to_own: return "combine to own";
  case Probe::fetch: return "fetch";
  case Probe::push: return "push";
  }
  return "unknown";
}

std::optional<Rank> partner(Topology const& topology, Rank rank, Link link) {
  std::size_t const place = place_in_node(topology, rank);
  if (link == Link::intra) {
    std::vector<Rank> const& neighbours = topology.neighbours(rank);
    std::size_t const other = place ^ 1;
    return other < neighbours.size() ? std::optional(neighbours[other]) : std::nullopt;
  }
  int const node = topology.node_of(rank) ^ 1;
  if (node >= topology.nodes() || place >= topology.members(node).size()) return {};
  return topology.members(node)[place];
}

std::size_t most_pairs_of_nodes(Topology const& topology) {
  std::size_t most = 0;
  for (int node = 1; node < topology.nodes(); node += 2)
    most = std::max(most, std::min(topology.members(node - 1).size(), topology.members(node).size()));
  return most;
}

bool is_possible(Probe probe, Topology const& topology, bool shared_memory) {
  if (is_alone(probe)) return most_pairs_of_nodes(topology) > 1;
  if (uses_shared_memory(probe)) return shared_memory && largest_node(topology) > 1;
  if (probe == Probe::copy || probe == Probe::reduce) return true;
  if (probe == Probe::exchange_reduce) return topology.ranks() > 1;
  return any_partner(topology, *link_of(probe));
}

Schedule make_probe(Probe probe, Topology const& topology, Rank rank, Index elements) {
  TRAINSTONE_REQUIRE(is_possible(probe, topology, true), "no pair of ranks for {}", to_string(probe));
  Writer writer{topology, rank, elements};
  Link const link = link_of(probe).value_or(reduction_link(topology));
  bool const takes_part = !is_alone(probe) || place_in_node(topology, rank) == 0;
  constexpr Rank nobody = -1; // no std::optional: g++ 14 warns that it may be uninitialised
  Rank const peer = takes_part ? partner(topology, rank, link).value_or(nobody) : nobody;
  bool const has_neighbours = topology.neighbours(rank).size() > 1;
  switch (probe) {
  case Probe::exchange_intra:
  case Probe::exchange_inter:
  case Probe::exchange_inter_alone:
    if (peer != nobody) writer.exchange(peer);
    break;
  case Probe::one_way_intra:
  case Probe::one_way_inter:
  case Probe::one_way_inter_alone:
    if (peer != nobody) writer.one_way(peer);
    break;
  case Probe::overlap_intra:
  case Probe::overlap_inter:
    if (peer != nobody) writer.exchange_while_reducing(peer);
    break;
  case Probe::exchange_reduce:
    if (peer != nobody) writer.exchange_and_reduce(peer);
    break;
  case Probe::reduce: writer.reductions(); break;
  case Probe::copy: writer.copies(); break;
  case Probe::node_barrier:
    if (has_neighbours) writer.barriers(repetitions(probe));
    break;
  case Probe::combine_to_all:
    if (has_neighbours) writer.combine(every_neighbour);
    break;
  case Probe::combine_to_own:
    if (has_neighbours) writer.combine(own_memory);
    break;
  case Probe::fetch:
    if (has_neighbours) writer.fetch();
    break;
  case Probe::push:
    if (has_neighbours) writer.push();
    break;
  }
  bool const shared = uses_shared_memory(probe) && has_neighbours;
  return {.collective = Collective::all_reduce,
          .algorithm = Algorithm::direct,
          .rank = rank,
          .ranks = topology.ranks(),
          .elements = writer.data_elements(),
          .scratch_elements = elements,
          .rounds = std::move(writer.rounds),
          .neighbours = shared ? topology.neighbours(rank) : std::vector<Rank>{}};
}

double priced_bytes(Probe probe, Topology const& topology, Index elements, std::size_t element_bytes) {
  auto const moved = [&](Index count) { return static_cast<double>(count) * static_cast<double>(element_bytes); };
  if (probe == Probe::fetch || probe == Probe::push) return 2 * moved(elements);
  auto const parts = static_cast<Index>(largest_node(topology));
  Index const slice = Writer{topology, 0, elements}.slice_elements();
  if (probe == Probe::combine_to_all) return moved(2 * parts * slice); // every part read, and written
  if (probe == Probe::combine_to_own) return moved((parts + 1) * slice);
  return moved(elements);
}

int repetitions(Probe probe) {
  switch (probe) {
  case Probe::node_barrier: return 4;
  case Probe::one_way_intra:
  case Probe::one_way_inter:
  case Probe::one_way_inter_alone:
  case Probe::reduce:
  case Probe::copy: return 2;
  default: return 1;
  }
}

bool needs_fresh_data(Probe probe) {
  return probe != Probe::reduce && probe != Probe::copy && probe != Probe::node_barrier;
}

int extra_barriers(Probe probe) { return is_between_barriers(probe) ? 2 : 0; }

} // namespace trainstone
