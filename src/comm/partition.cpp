#include "comm/partition.hpp"

#include "core/error.hpp"

#include <algorithm>

namespace trainstone {

Partition Partition::even(Index elements, Rank ranks) {
  TRAINSTONE_REQUIRE(elements >= 0 && ranks >= 1, "cannot cut {} elements into {} blocks", elements, ranks);
  Index const size = elements / ranks;
  Index const larger = elements % ranks;
  std::vector<Index> offsets{0};
  for (Rank block = 0; block < ranks; ++block) offsets.push_back(offsets.back() + size + (block < larger ? 1 : 0));
  return Partition(std::move(offsets));
}

Partition Partition::of_sizes(std::vector<Index> const& sizes) {
  TRAINSTONE_REQUIRE(!sizes.empty(), "a partition needs at least one block");
  std::vector<Index> offsets{0};
  for (Index const size : sizes) {
    TRAINSTONE_REQUIRE(size >= 0, "a block cannot have {} elements", size);
    offsets.push_back(offsets.back() + size);
  }
  return Partition(std::move(offsets));
}

Range Partition::range(Rank block) const {
  TRAINSTONE_REQUIRE(block >= 0 && block < ranks(), "no block {} among {}", block, ranks());
  auto const i = static_cast<std::size_t>(block);
  return {m_offsets[i], m_offsets[i + 1]};
}

Index Partition::largest() const {
  Index size = 0;
  for (Rank block = 0; block < ranks(); ++block) size = std::max(size, range(block).size());
  return size;
}

} // namespace trainstone
