#include "comm/algorithms/recursive.hpp"

#include "core/error.hpp"

namespace trainstone {

namespace {

/// `count` blocks, a power of two, of the aligned group that holds `place`.
Range aligned_run(Partition const& blocks, Rank place, Rank count) {
  Rank const first = place - place % count;
  return blocks.range(first, first + count);
}

} // namespace

Hypercube::Hypercube(Group const& group, Placement placement)
    : m_group(group),
      m_folding(group.size()),
      m_placement(placement),
      m_place(reversed_if_asked(m_folding.number_of(group.me()))) {
  TRAINSTONE_REQUIRE(!m_folding.is_folded(group.me()), "member {} folds, its partner {} is in the core", group.me(),
                     m_folding.partner(group.me()));
}

Rank Hypercube::rank_at(Rank place) const { return m_group[m_folding.member_at(reversed_if_asked(place))]; }

Rank Hypercube::reversed_if_asked(Rank number) const {
  if (m_placement == Placement::in_order) return number;
  Rank reversed = 0;
  for (Rank bit = 1; bit < size(); bit *= 2) {
    reversed = 2 * reversed + number % 2;
    number /= 2;
  }
  return reversed;
}

void append_recursive_halving(ScheduleBuilder& builder, Hypercube const& cube, Partition const& blocks) {
  TRAINSTONE_REQUIRE(blocks.ranks() == cube.size(), "{} blocks for a core of {}", blocks.ranks(), cube.size());
  for (Rank distance = cube.size() / 2; distance >= 1; distance /= 2) {
    Rank const partner = cube.place() ^ distance;
    Range const kept = aligned_run(blocks, cube.place(), distance);
    builder.reuse_scratch();
    Range const received = builder.new_scratch(kept.size());
    builder.receive(cube.rank_at(partner), scratch_slice(received));
    builder.send(cube.rank_at(partner), data_slice(aligned_run(blocks, partner, distance)));
    builder.reduce(scratch_slice(received), data_slice(kept));
    builder.end_round();
  }
}

void append_recursive_doubling(ScheduleBuilder& builder, Hypercube const& cube, Partition const& blocks) {
  TRAINSTONE_REQUIRE(blocks.ranks() == cube.size(), "{} blocks for a core of {}", blocks.ranks(), cube.size());
  for (Rank distance = 1; distance < cube.size(); distance *= 2) {
    Rank const partner = cube.place() ^ distance;
    builder.receive(cube.rank_at(partner), data_slice(aligned_run(blocks, partner, distance)));
    builder.send(cube.rank_at(partner), data_slice(aligned_run(blocks, cube.place(), distance)));
    builder.end_round();
  }
}

Schedule make_recursive_reduce_scatter(Problem const& problem, Rank rank) {
  ScheduleBuilder builder(problem, Algorithm::recursive, rank);
  Group const all = Group::all(problem.ranks(), rank);
  PowerOfTwoCore const folding(all.size());
  append_folding_sum(builder, all, {0, problem.elements()});
  if (!folding.is_folded(rank)) {
    append_recursive_halving(builder, Hypercube(all, Placement::in_order), folding.merged(problem.partition));
  }
  if (folding.has_partner(rank)) {
    Rank const folded = folding.is_folded(rank) ? rank : folding.partner(rank);
    append_unfolding(builder, all, problem.partition.range(folded));
  }
  return builder.finish();
}

Schedule make_recursive_all_gather(Problem const& problem, Rank rank) {
  ScheduleBuilder builder(problem, Algorithm::recursive, rank);
  Group const all = Group::all(problem.ranks(), rank);
  PowerOfTwoCore const folding(all.size());
  if (folding.is_folded(rank)) {
    builder.send(folding.partner(rank), data_slice(problem.partition.range(rank)));
    builder.end_round();
  } else {
    if (folding.has_partner(rank)) {
      Rank const folded = folding.partner(rank);
      builder.receive(folded, data_slice(problem.partition.range(folded)));
      builder.end_round();
    }
    append_recursive_doubling(builder, Hypercube(all, Placement::in_order), folding.merged(problem.partition));
  }
  append_unfolding(builder, all, {0, problem.elements()});
  return builder.finish();
}

} // namespace trainstone
