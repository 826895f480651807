#include "comm/symbolic_buffer.hpp"

#include <algorithm>

namespace trainstone::Impl {

namespace {

/// The first `size` elements of a piece; the piece keeps the rest.
Piece take_front(Piece& piece, Index size) {
  Piece front = piece;
  front.size = size;
  piece.size -= size;
  piece.element += size;
  return front;
}

Piece sum(Piece const& a, Piece const& b) {
  if (!a.defined() || !b.defined() || a.element != b.element) return {a.size, a.element, nullptr};
  auto total = std::make_shared<std::vector<std::uint32_t>>(*a.contributions);
  for (std::size_t rank = 0; rank < total->size(); ++rank) (*total)[rank] += (*b.contributions)[rank];
  return {a.size, a.element, std::move(total)};
}

} // namespace

std::vector<Piece> sum(std::vector<Piece> const& a, std::vector<Piece> const& b) {
  std::vector<Piece> result;
  Piece rest_a, rest_b;
  auto next_a = a.begin();
  auto next_b = b.begin();
  while (true) {
    if (rest_a.size == 0 && next_a != a.end()) rest_a = *next_a++;
    if (rest_b.size == 0 && next_b != b.end()) rest_b = *next_b++;
    Index const size = std::min(rest_a.size, rest_b.size);
    if (size == 0) return result;
    Piece const front_a = take_front(rest_a, size);
    result.push_back(sum(front_a, take_front(rest_b, size)));
  }
}

SymbolicBuffer SymbolicBuffer::contribution_of(Rank rank, Rank ranks, Index elements) {
  auto contributions = std::make_shared<std::vector<std::uint32_t>>(static_cast<std::size_t>(ranks), 0u);
  (*contributions)[static_cast<std::size_t>(rank)] = 1;
  return SymbolicBuffer({elements, 0, std::move(contributions)});
}

/// Makes a piece begin at `position`; returns its index.
std::size_t SymbolicBuffer::cut(Index position) {
  Index begin = 0;
  for (std::size_t i = 0; i < m_pieces.size(); ++i) {
    if (begin == position) return i;
    if (position < begin + m_pieces[i].size) {
      Piece const front = take_front(m_pieces[i], position - begin);
      m_pieces.insert(m_pieces.begin() + static_cast<std::ptrdiff_t>(i), front);
      return i + 1;
    }
    begin += m_pieces[i].size;
  }
  return m_pieces.size();
}

std::vector<Piece> SymbolicBuffer::read(Range const& range) {
  auto const first = static_cast<std::ptrdiff_t>(cut(range.begin));
  auto const last = static_cast<std::ptrdiff_t>(cut(range.end));
  return {m_pieces.begin() + first, m_pieces.begin() + last};
}

void SymbolicBuffer::write(Range const& range, std::vector<Piece> const& pieces) {
  auto const first = static_cast<std::ptrdiff_t>(cut(range.begin));
  auto const last = static_cast<std::ptrdiff_t>(cut(range.end));
  m_pieces.erase(m_pieces.begin() + first, m_pieces.begin() + last);
  m_pieces.insert(m_pieces.begin() + first, pieces.begin(), pieces.end());
}

} // namespace trainstone::Impl
