#include "comm/algorithms/binomial_blocks.hpp"

namespace trainstone {

BinomialBlocks::BinomialBlocks(Group const& group, Rank root, Partition const& blocks)
    : m_root(root),
      m_blocks(blocks),
      m_place(binomial_place((group.me() - root + group.size()) % group.size(), group.size())),
      m_children(binomial_subtrees(m_place)) {}

Run BinomialBlocks::run(BinomialSubtree const& subtree) const {
  return run_of_blocks(m_blocks, m_root + subtree.begin, subtree.end - subtree.begin);
}

Slice BinomialBlocks::make_room(ScheduleBuilder& builder) const {
  return landing_place(builder, run({m_place.position, m_place.end}));
}

Slice BinomialBlocks::part(Slice const& whole, BinomialSubtree const& child) const {
  Index const begin = whole.range.begin + run({m_place.position, child.begin}).size();
  return {whole.buffer, {begin, begin + run(child).size()}, whole.owner};
}

} // namespace trainstone
