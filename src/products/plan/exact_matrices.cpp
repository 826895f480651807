#include "products/plan/exact_matrices.hpp"

#include "core/error.hpp"

namespace trainstone {

namespace {

/// -1, 0 or 1, of a place in one of the thin matrices. Source: splitmix64, doi:10.1145/2660193.2660195.
Index digit(std::uint64_t matrix, Index place, Index column) {
  std::uint64_t value = 0x9e3779b97f4a7c15u *
                        (4 * (3 * static_cast<std::uint64_t>(place) + static_cast<std::uint64_t>(column)) + matrix + 1);
  value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9u;
  value = (value ^ value >> 27) * 0x94d049bb133111ebu;
  return static_cast<Index>((value ^ value >> 31) % 3) - 1;
}

/// A = left (m, 3) times middle (3, k), B = other middle (k, 3) times right (3, n).
enum Thin : std::uint64_t { left, middle, other_middle, right };

Index dot(Thin first, Index i, Thin second, Index j) {
  Index sum = 0;
  for (Index p = 0; p < ExactMatrices::rank; ++p) sum += digit(first, i, p) * digit(second, j, p);
  return sum;
}

} // namespace

ExactMatrices::ExactMatrices(ProductSize const& size) : m_size(size) {
  TRAINSTONE_REQUIRE_INPUT(size.k <= most_inner, "K = {}: must be at most {}, so that sums in fp32 stay exact", size.k,
                           most_inner);
  for (Index l = 0; l < size.k; ++l)
    for (std::size_t p = 0; p < m_inner.size(); ++p)
      for (std::size_t q = 0; q < m_inner.size(); ++q)
        m_inner[p][q] += digit(middle, l, static_cast<Index>(p)) * digit(other_middle, l, static_cast<Index>(q));
}

float ExactMatrices::value(Operand operand, Index row, Index column) const {
  bool const is_a = operand == Operand::a;
  if (row >= (is_a ? m_size.m : m_size.k) || column >= (is_a ? m_size.k : m_size.n)) return 0;
  return static_cast<float>(is_a ? dot(left, row, middle, column) : dot(other_middle, row, right, column));
}

float ExactMatrices::product(Index row, Index column) const {
  if (row >= m_size.m || column >= m_size.n) return 0;
  Index sum = 0;
  for (std::size_t p = 0; p < m_inner.size(); ++p)
    for (std::size_t q = 0; q < m_inner.size(); ++q)
      sum += digit(left, row, static_cast<Index>(p)) * m_inner[p][q] * digit(right, column, static_cast<Index>(q));
  return static_cast<float>(sum);
}

} // namespace trainstone
