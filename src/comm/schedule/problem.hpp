#pragma once

// A problem: a collective on a number of elements, ranks and nodes. Owns the meaning of every collective. A plain
// value. Generators turn it into schedules, and the simulator proves the schedules against it.
//
// All collectives work in place on `data`, partition.elements() elements on every rank; block r of the partition is
// rank r's. "Sum" stands for the operation: sum, max or min. What is not named below is undefined at the end (at the
// start, where "holds" names what is defined); schedules may use it as workspace.
//
//   all_reduce      every rank holds data; all end with the sum over ranks
//   reduce_scatter  every rank holds data; rank r ends with block r of the sum
//   all_gather      rank r holds block r; all end with all blocks
//   broadcast       the root holds data; all end with it
//   reduce          every rank holds data; the root ends with the sum
//   gather          rank r holds block r; the root ends with all blocks
//   scatter         the root holds data; rank r ends with block r
//   all_to_all      every rank holds data: a message for every rank, by ascending rank; that between ranks i and j, in
//                   both directions, has the size of block (i + j) mod N (of even partitions: the usual exchange).
//                   Rank i ends with j's message for i in the place where its message for j was
//   barrier         no data (0 elements); no rank ends before all have started
//   server_push     the last `servers` ranks are parameter servers, the others workers; workers' blocks are empty.
//                   Workers hold data; server s ends with block s of the sum over workers
//   server_pull     server s holds block s; workers end with all blocks
//   send_receive    every rank holds the first half of data; rank r ends with the first half of rank (r + distance) mod
//   N
//                   in its second half. Of an odd number of elements the last one is in no half
//   send            the root holds data; rank (root - distance) mod N ends with it
//   copy            every rank holds the first half of data, and ends with it in its second half
//   signal_wait     rank r does not end before rank (r + distance) mod N has started; there is no data

#include "comm/schedule/schedule.hpp"
#include "comm/schedule/topology.hpp"

namespace trainstone {

/// Elements per message of segmented algorithms, unless the problem says otherwise.
inline constexpr Index default_segment = 16384;

struct Problem {
  Collective collective = Collective::all_reduce;
  Partition partition = Partition::even(0, 1);
  Topology topology = Topology::one_node(1);
  Rank root = 0;              ///< of broadcast, reduce, gather, scatter
  Rank servers = 0;           ///< of server_push and server_pull: 1 ... ranks-1
  Rank distance = 1;          ///< of send_receive, send and signal_wait: 0 ...; a multiple of ranks: to itself
  bool shared_memory = false; ///< the buffers of ranks on one node lie in one segment that all of them see
  Index segment = 0;          ///< elements per message of segmented algorithms; 0: default_segment

  Rank ranks() const { return partition.ranks(); }
  Index elements() const { return partition.elements(); }
  Rank workers() const { return ranks() - servers; }
  /// From whom a rank receives at this distance, and to whom it sends. A copy stays where it is.
  Rank source_of(Rank rank) const { return (rank + reach()) % ranks(); }
  Rank destination_of(Rank rank) const { return (rank + ranks() - reach()) % ranks(); }
  Index longest_segment() const { return segment > 0 ? segment : default_segment; }

  /// The distance between partners, below the number of ranks.
  Rank reach() const { return collective == Collective::copy ? 0 : distance % ranks(); }
  /// What benchmarks call the size of data: where it has two halves, one of them.
  Index message_elements() const { return has_halves(collective) ? elements() / 2 : elements(); }

  /// On one node, without shared memory, root 0.
  static Problem on_one_node(Collective collective, Partition const& partition) {
    return {.collective = collective, .partition = partition, .topology = Topology::one_node(partition.ranks())};
  }
};

/// A problem on even blocks (with servers: blocks are even among the servers). If the collective has no root or
/// servers, these values are ignored, so that one setting serves many collectives.
Problem even_problem(Collective collective, Index elements, Topology const& topology, Rank root = 0, Rank servers = 0);
/// The one that benchmarks take, by its message_elements(), none for a collective without data.
Problem problem_of_size(Collective collective, Index message_elements, Topology const& topology, Rank root,
                        Rank servers);

/// The values on which ranks that solve a problem together must agree, beside collective, algorithm and length.
Agreement agreement_on(Problem const& problem);

/// Of data with two halves: what a rank sends, and where it receives.
Range sent_half(Problem const& problem);
Range received_half(Problem const& problem);

/// Where in rank i's data of an all-to-all its message for rank j lies.
Range all_to_all_range(Partition const& partition, Rank i, Rank j);

/// The partition of a push or pull: even among the servers, nothing for workers.
Partition server_partition(Index elements, Rank workers, Rank servers);

} // namespace trainstone
