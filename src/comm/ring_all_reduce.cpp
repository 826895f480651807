#include "comm/ring_all_reduce.hpp"

#include "core/error.hpp"

namespace trainstone {

namespace {

/// One rank's place on the ring, and the moves of a round; those of empty ranges do not exist.
struct Ring {
  Partition const& partition;
  Rank rank;
  Rank ranks = partition.ranks();
  Rank left = (rank + ranks - 1) % ranks;
  Rank right = (rank + 1) % ranks;

  /// The block that lies `steps` to the left of this rank's own.
  Slice block(Rank steps) const { return {BufferId::data, partition.range((rank + 2 * ranks - steps) % ranks)}; }

  Round reduce_scatter_round(Rank k) const {
    Slice const outgoing = block(k + 1);
    Slice const sum = block(k + 2);
    Slice const received{BufferId::scratch, {0, sum.range.size()}};
    Round round;
    if (!sum.range.empty()) round.push_back(Move::receive(left, received));
    if (!outgoing.range.empty()) round.push_back(Move::send(right, outgoing));
    if (!sum.range.empty()) round.push_back(Move::reduce(received, sum));
    return round;
  }

  Round all_gather_round(Rank k) const {
    Slice const outgoing = block(k);
    Slice const incoming = block(k + 1);
    Round round;
    if (!incoming.range.empty()) round.push_back(Move::receive(left, incoming));
    if (!outgoing.range.empty()) round.push_back(Move::send(right, outgoing));
    return round;
  }
};

} // namespace

Schedule make_ring_all_reduce(Partition const& partition, Rank rank) {
  Ring const ring{partition, rank};
  Schedule schedule{.collective = Collective::all_reduce,
                    .algorithm = Algorithm::ring,
                    .rank = rank,
                    .ranks = ring.ranks,
                    .elements = partition.elements(),
                    .scratch_elements = ring.ranks > 1 ? partition.largest() : 0,
                    .rounds = {}};
  for (Rank k = 0; k + 1 < ring.ranks; ++k) schedule.rounds.push_back(ring.reduce_scatter_round(k));
  for (Rank k = 0; k + 1 < ring.ranks; ++k) schedule.rounds.push_back(ring.all_gather_round(k));
  return schedule;
}

} // namespace trainstone
