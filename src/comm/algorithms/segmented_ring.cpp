#include "comm/algorithms/segmented_ring.hpp"

#include "comm/algorithms/ring.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace trainstone {

namespace {

/// Piece `number` of `pieces` that differ by at most one element, the larger ones first.
Range piece_of(Range const& block, Index number, Index pieces) {
  Index const size = block.size() / pieces;
  Index const larger = block.size() % pieces;
  auto const begin = [&](Index i) { return block.begin + i * size + std::min(i, larger); };
  return {begin(number), begin(number + 1)};
}

/// What has arrived in scratch and is not yet added.
struct Arrived {
  Range scratch;
  Range sum;
};

/// Segment i of step k travels in round k * pieces + i. Every block is cut into the same number of pieces, so that all
/// ranks count rounds alike; with two pieces or more, what arrives in one round is needed two rounds later at the
/// earliest, and is added during the round between.
class SegmentedRing {
public:
  SegmentedRing(ScheduleBuilder& builder, Ring ring, Index pieces)
      : m_builder(builder), m_ring(std::move(ring)), m_pieces(pieces) {
    Index largest = 0;
    for (Range const& block : m_ring.blocks) largest = std::max(largest, piece_of(block, 0, pieces).size());
    if (m_ring.group.size() > 1) m_slots = {builder.new_scratch(largest), builder.new_scratch(largest)};
  }

  void append_reduce_scatter() {
    for (Rank step = 0; step + 1 < m_ring.group.size(); ++step) {
      for (Index number = 0; number < m_pieces; ++number) {
        Range const sum = piece(step + 2, number);
        Range const slot = m_slots[static_cast<std::size_t>(m_next_slot)];
        Arrived const arriving{{slot.begin, slot.begin + sum.size()}, sum};
        m_next_slot = 1 - m_next_slot;
        add_arrived();
        m_builder.receive(m_ring.left(), scratch_slice(arriving.scratch));
        m_builder.send(m_ring.right(), data_slice(piece(step + 1, number)));
        m_arrived = arriving;
        if (m_pieces == 1) add_arrived(); // the next round sends it
        m_builder.end_round();
      }
    }
  }

  void append_all_gather() {
    for (Rank step = 0; step + 1 < m_ring.group.size(); ++step) {
      for (Index number = 0; number < m_pieces; ++number) {
        add_arrived();
        m_builder.receive(m_ring.left(), data_slice(piece(step + 1, number)));
        m_builder.send(m_ring.right(), data_slice(piece(step, number)));
        m_builder.end_round();
      }
    }
  }

private:
  Range piece(Rank steps, Index number) const { return piece_of(m_ring.block(steps), number, m_pieces); }

  void add_arrived() {
    m_builder.reduce(scratch_slice(m_arrived.scratch), data_slice(m_arrived.sum));
    m_arrived = {};
  }

  ScheduleBuilder& m_builder;
  Ring m_ring;
  Index m_pieces;
  std::array<Range, 2> m_slots; // filled in turn: one is being added while the other one is being filled
  int m_next_slot = 0;
  Arrived m_arrived;
};

} // namespace

Schedule make_segmented_ring_all_reduce(Problem const& problem, Rank rank) {
  ScheduleBuilder builder(problem, Algorithm::segmented_ring, rank);
  Index const longest = problem.longest_segment();
  Index const pieces = std::max<Index>(1, (problem.partition.largest() + longest - 1) / longest);
  SegmentedRing ring(builder, ring_of(problem, rank), pieces);
  ring.append_reduce_scatter();
  ring.append_all_gather();
  return builder.finish();
}

} // namespace trainstone
