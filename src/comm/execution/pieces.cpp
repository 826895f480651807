#include "comm/execution/pieces.hpp"

#include "core/error.hpp"

#include <algorithm>

namespace trainstone {

void Pieces::append(Range const& memory) {
  TRAINSTONE_REQUIRE(memory.begin >= 0 && memory.begin <= memory.end, "no piece is [{}, {})", memory.begin, memory.end);
  if (memory.empty()) return;
  if (!m_memory.empty() && m_memory.back().end == memory.begin) {
    m_memory.back().end = memory.end;
    return;
  }
  Index const first = elements();
  m_memory.push_back(memory);
  m_first.push_back(first);
}

Index Pieces::extent() const {
  Index end = 0;
  for (Range const& piece : m_memory) end = std::max(end, piece.end);
  return end;
}

std::size_t Pieces::piece_of(Index element) const {
  TRAINSTONE_REQUIRE(element >= 0 && element < elements(), "element {} of {}", element, elements());
  return static_cast<std::size_t>(std::ranges::upper_bound(m_first, element) - m_first.begin()) - 1;
}

Index Pieces::place(Index element) const {
  if (is_contiguous()) return element;
  std::size_t const piece = piece_of(element);
  return m_memory[piece].begin + element - m_first[piece];
}

Index Pieces::contiguous(Index element, Index at_most) const {
  if (is_contiguous()) return at_most;
  std::size_t const piece = piece_of(element);
  return std::min(at_most, m_first[piece] + m_memory[piece].size() - element);
}

} // namespace trainstone
