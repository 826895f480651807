#include "comm/simulation/memory_access.hpp"

#include <algorithm>
#include <tuple>

namespace trainstone::Impl {

namespace {

/// Of the accesses seen so far: the one that ends last, and the one that ends last in another sequence than that.
class Latest {
public:
  void add(MemoryAccess const& access) {
    if (!m_first || access.range.end > m_first->range.end) {
      if (m_first && m_first->sequence != access.sequence) m_second = m_first;
      m_first = &access;
    } else if (access.sequence != m_first->sequence && (!m_second || access.range.end > m_second->range.end)) {
      m_second = &access;
    }
  }

  /// One of another sequence that reaches into this access, which begins after them all.
  MemoryAccess const* overlapping(MemoryAccess const& access) const {
    MemoryAccess const* const other = m_first && m_first->sequence == access.sequence ? m_second : m_first;
    return other && other->range.end > access.range.begin ? other : nullptr;
  }

private:
  MemoryAccess const* m_first = nullptr;
  MemoryAccess const* m_second = nullptr;
};

} // namespace

void append_accesses(Schedule const& schedule, std::size_t round, Move const& move, std::size_t sequence,
                     std::vector<MemoryAccess>& accesses) {
  auto const append = [&](Slice const& slice, bool writes) {
    if (slice.range.empty()) return;
    auto const append_of = [&](Rank owner) {
      accesses.push_back({owner, slice.buffer, slice.range, writes, sequence, schedule.rank, round, &move});
    };
    if (slice.owner == every_neighbour) {
      for (Rank const neighbour : schedule.neighbours) append_of(neighbour);
    } else {
      append_of(slice.owner == own_memory ? schedule.rank : slice.owner);
    }
  };
  if (move.reads()) append(move.from, false);
  if (move.writes()) append(move.to, true); // a reduce reads there, too, which disturbs no more than its writing
}

std::optional<std::pair<MemoryAccess, MemoryAccess>> find_conflict(std::vector<MemoryAccess> accesses) {
  std::ranges::stable_sort(accesses, {},
                           [](MemoryAccess const& a) { return std::tuple(a.owner, a.buffer, a.range.begin); });
  Latest all, written;
  MemoryAccess const* before = nullptr;
  for (MemoryAccess const& access : accesses) {
    if (before && (before->owner != access.owner || before->buffer != access.buffer)) all = written = Latest();
    before = &access;
    MemoryAccess const* const other = (access.writes ? all : written).overlapping(access);
    if (other) return std::pair(*other, access);
    all.add(access);
    if (access.writes) written.add(access);
  }
  return {};
}

} // namespace trainstone::Impl
