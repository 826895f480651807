#include "comm/simulation/symbolic_buffer.hpp"

#include "core/error.hpp"

#include <algorithm>
#include <utility>

namespace trainstone::Impl {

namespace {

/// The first `size` elements of a piece; the piece keeps the rest.
Piece take_front(Piece& piece, Index size) {
  Piece const front{size, piece.element, piece.sum};
  piece.size -= size;
  piece.element += size;
  return front;
}

Piece sum(SumTrees& trees, Piece const& a, Piece const& b) {
  if (!a.defined() || !b.defined() || a.element != b.element) return {a.size, a.element, undefined_sum};
  return {a.size, a.element, trees.add(a.sum, b.sum)};
}

} // namespace

bool all_defined(Pieces const& pieces) { return std::ranges::all_of(pieces, &Piece::defined); }

Pieces sum(SumTrees& trees, Pieces const& a, Pieces const& b) {
  Pieces result;
  Piece rest_a, rest_b;
  auto next_a = a.begin();
  auto next_b = b.begin();
  while (true) {
    if (rest_a.size == 0 && next_a != a.end()) rest_a = *next_a++;
    if (rest_b.size == 0 && next_b != b.end()) rest_b = *next_b++;
    Index const size = std::min(rest_a.size, rest_b.size);
    if (size == 0) return result;
    Piece const front_a = take_front(rest_a, size);
    result.push_back(sum(trees, front_a, take_front(rest_b, size)));
  }
}

Pieces balanced_sum(SumTrees& trees, std::vector<Pieces> parts) {
  TRAINSTONE_REQUIRE(!parts.empty(), "a sum of no parts");
  while (parts.size() > 1) {
    std::vector<Pieces> level;
    for (std::size_t i = 0; i + 1 < parts.size(); i += 2) level.push_back(sum(trees, parts[i], parts[i + 1]));
    if (parts.size() % 2 == 1) level.push_back(std::move(parts.back()));
    parts = std::move(level);
  }
  return std::move(parts.front());
}

/// Whether this run may become a part of the one before it.
bool SymbolicBuffer::Run::continues(Run const& before) const {
  if (sum != before.sum) return false;
  return sum == undefined_sum || element - before.element == begin - before.begin;
}

SymbolicBuffer::SymbolicBuffer(Index elements) {
  if (elements > 0) m_runs.push_back({0, 0, undefined_sum});
  m_runs.push_back({elements, 0, undefined_sum});
}

/// The run that position lies in.
std::size_t SymbolicBuffer::find(Index position) const {
  auto const after = std::ranges::upper_bound(m_runs, position, {}, &Run::begin);
  return static_cast<std::size_t>(after - m_runs.begin()) - 1;
}

/// Makes a run begin at `position`; returns its index.
std::size_t SymbolicBuffer::cut(Index position) {
  std::size_t const i = find(position);
  Run const run = m_runs[i];
  if (run.begin == position) return i;
  Run const rest{position, run.element + position - run.begin, run.sum};
  m_runs.insert(m_runs.begin() + static_cast<std::ptrdiff_t>(i) + 1, rest);
  return i + 1;
}

Pieces SymbolicBuffer::read(Range const& range) const {
  Pieces pieces;
  Index begin = range.begin;
  for (std::size_t i = find(begin); begin < range.end; ++i) {
    Run const& run = m_runs[i];
    Index const end = std::min(range.end, m_runs[i + 1].begin);
    pieces.push_back({end - begin, run.element + begin - run.begin, run.sum});
    begin = end;
  }
  return pieces;
}

void SymbolicBuffer::write(Range const& range, Pieces const& pieces) {
  if (range.empty()) return;
  std::size_t const first = cut(range.begin);
  std::size_t const last = cut(range.end);
  std::vector<Run> runs;
  Index begin = range.begin;
  for (Piece const& piece : pieces) {
    Run const run{begin, piece.element, piece.sum};
    if (runs.empty() || !run.continues(runs.back())) runs.push_back(run);
    begin += piece.size;
  }
  TRAINSTONE_REQUIRE(begin == range.end, "{} elements do not fill a range of {}", begin - range.begin, range.size());
  auto const at = [&](std::size_t i) { return m_runs.begin() + static_cast<std::ptrdiff_t>(i); };
  // what lies on both sides may be continued: without this a buffer that is received in bits stays in bits
  bool const joins_left = first > 0 && runs.front().continues(m_runs[first - 1]);
  bool const joins_right = last + 1 < m_runs.size() && m_runs[last].continues(runs.back());
  m_runs.erase(at(first), at(joins_right ? last + 1 : last));
  m_runs.insert(at(first), runs.begin() + (joins_left ? 1 : 0), runs.end());
}

} // namespace trainstone::Impl
