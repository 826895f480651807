#include "comm/schedule/partition.hpp"

#include "core/error.hpp"

#include <algorithm>
#include <utility>

namespace trainstone {

Partition::Partition(std::vector<Index> offsets)
    : m_offsets(std::make_shared<std::vector<Index> const>(std::move(offsets))) {
  for (Index const offset : *m_offsets) m_fingerprint.add(static_cast<std::uint64_t>(offset));
}

Partition Partition::even(Range const& part, Rank ranks) {
  TRAINSTONE_REQUIRE(part.size() >= 0 && ranks >= 1, "cannot cut {} elements into {} blocks", part.size(), ranks);
  Index const size = part.size() / ranks;
  Index const larger = part.size() % ranks;
  std::vector<Index> offsets{part.begin};
  offsets.reserve(static_cast<std::size_t>(ranks) + 1);
  for (Rank block = 0; block < ranks; ++block) offsets.push_back(offsets.back() + size + (block < larger ? 1 : 0));
  return Partition(std::move(offsets));
}

Partition Partition::of_sizes(std::vector<Index> const& sizes) {
  std::vector<Index> offsets{0};
  for (Index const size : sizes) offsets.push_back(offsets.back() + size);
  return of_offsets(std::move(offsets));
}

Partition Partition::of_offsets(std::vector<Index> offsets) {
  TRAINSTONE_REQUIRE(offsets.size() >= 2, "a partition needs at least one block");
  for (std::size_t i = 1; i < offsets.size(); ++i) {
    TRAINSTONE_REQUIRE(offsets[i] >= offsets[i - 1], "a block cannot have {} elements", offsets[i] - offsets[i - 1]);
  }
  return Partition(std::move(offsets));
}

Range Partition::range(Rank block) const { return range(block, block + 1); }

Range Partition::range(Rank first, Rank last) const {
  TRAINSTONE_REQUIRE(first >= 0 && first <= last && last <= ranks(), "no blocks {} to {} among {}", first, last,
                     ranks());
  return {(*m_offsets)[static_cast<std::size_t>(first)], (*m_offsets)[static_cast<std::size_t>(last)]};
}

Index Partition::largest() const {
  Index size = 0;
  for (Rank block = 0; block < ranks(); ++block) size = std::max(size, range(block).size());
  return size;
}

} // namespace trainstone
