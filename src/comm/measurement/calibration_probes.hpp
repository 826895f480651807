#pragma once

// Small schedules whose times tell what messages, reductions, copies and shared memory cost. Owns their form: made of
// the same moves as those of algorithms and run by the same executor, so that its overheads are in the figures. What
// is sent or looked at by neighbours is to be written before by who runs them, as in a training. Plain values.

#include "comm/schedule/schedule.hpp"
#include "comm/schedule/topology.hpp"

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

namespace trainstone {

enum class Probe {
  exchange_intra, ///< each of a pair sends to the other
  exchange_inter,
  one_way_intra, ///< two messages, to and fro: one of a pair sends at a time
  one_way_inter,
  exchange_inter_alone, ///< one pair of each two nodes
  one_way_inter_alone,
  overlap_intra, ///< as exchange, and a reduction in own memory while the messages are under way
  overlap_inter,
  exchange_reduce, ///< as exchange, followed by a reduction of what was received
  reduce,          ///< two reductions in own memory, there and back
  copy,            ///< two copies in own memory, there and back
  node_barrier,    ///< four of them
  // between barriers, of data that every rank has written anew
  combine_to_all, ///< a slice of all neighbours' data summed up, to all of them
  combine_to_own, ///< the same, to the rank's own alone
  fetch,          ///< a neighbour's data copied
  push,           ///< a rank's own data pushed into a neighbour's memory
};

inline constexpr std::array probes{Probe::exchange_intra,
                                   Probe::exchange_inter,
                                   Probe::one_way_intra,
                                   Probe::one_way_inter,
                                   Probe::exchange_inter_alone,
                                   Probe::one_way_inter_alone,
                                   Probe::overlap_intra,
                                   Probe::overlap_inter,
                                   Probe::exchange_reduce,
                                   Probe::reduce,
                                   Probe::copy,
                                   Probe::node_barrier,
                                   Probe::combine_to_all,
                                   Probe::combine_to_own,
                                   Probe::fetch,
                                   Probe::push};

std::string_view to_string(Probe probe);

/// With whom a rank exchanges: members of a node in pairs, and over a node border the members of the same number of
/// two nodes. Nothing for those who are left over. Pairs exchange all at the same time.
std::optional<Rank> partner(Topology const& topology, Rank rank, Link link);

/// How many pairs of two nodes exchange at the same time, at most.
std::size_t most_pairs_of_nodes(Topology const& topology);

/// Whether at least one pair, or node, can run it. A pair is alone if there are others.
bool is_possible(Probe probe, Topology const& topology, bool shared_memory);

/// Moves of `elements` elements each; combines have that many in all slices together. A rank without partner has no
/// rounds. All ranks' data and scratch have the same size.
Schedule make_probe(Probe probe, Topology const& topology, Rank rank, Index elements);
/// What one move is priced by (MachineModel): bytes sent, added or copied; in shared memory read and written.
double priced_bytes(Probe probe, Topology const& topology, Index elements, std::size_t element_bytes);

/// How many times the probe does what it measures, one after the other.
int repetitions(Probe probe);
/// Node barriers that are in it besides.
int extra_barriers(Probe probe);
/// Whether its first `elements` elements are to be written by their rank before every run, as a training writes its
/// next gradients: what neighbours have read is no longer the rank's own.
bool needs_fresh_data(Probe probe);

} // namespace trainstone
