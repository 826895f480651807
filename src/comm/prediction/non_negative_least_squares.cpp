#include "comm/prediction/non_negative_least_squares.hpp"

#include "core/error.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <utility>

namespace trainstone::Impl {

namespace {

using Matrix = std::vector<std::vector<double>>;

double dot(Column const& a, Column const& b) { return std::inner_product(a.begin(), a.end(), b.begin(), 0.0); }

/// The normal equations, and which unknowns are free; the others are 0.
class Solver {
public:
  Solver(Matrix gram, std::vector<double> right)
      : m_gram(std::move(gram)), m_right(std::move(right)), m_x(m_right.size(), 0.0), m_free(m_right.size(), false) {}

  std::vector<double> solve() {
    std::size_t const unknowns = m_right.size();
    for (std::size_t step = 0; step < 10 * unknowns; ++step) { // a bound for the case that rounding makes it circle
      std::size_t const next = steepest();
      if (next == unknowns) break;
      m_free[next] = true;
      descend();
    }
    return m_x;
  }

private:
  /// The bound unknown that promises most when it grows; the number of unknowns if none does.
  std::size_t steepest() const {
    constexpr double nothing = 1e-12; // columns have length one and the target's scale is in m_right
    std::size_t best = m_right.size();
    double most = nothing * (1 + std::abs(*std::ranges::max_element(m_right)));
    for (std::size_t k = 0; k < m_right.size(); ++k) {
      double const gain = m_right[k] - dot(m_gram[k], m_x);
      if (!m_free[k] && gain > most) {
        most = gain;
        best = k;
      }
    }
    return best;
  }

  /// Moves the free unknowns to their least squares, binding those that would become negative on the way.
  void descend() {
    while (true) {
      std::vector<double> const wanted = unconstrained();
      double share = 1;
      std::size_t first_at_zero = m_x.size();
      for (std::size_t k = 0; k < m_x.size(); ++k) {
        if (!m_free[k] || wanted[k] > 0) continue;
        double const until_zero = m_x[k] > 0 ? m_x[k] / (m_x[k] - wanted[k]) : 0;
        if (first_at_zero < m_x.size() && until_zero >= share) continue;
        share = until_zero;
        first_at_zero = k;
      }
      for (std::size_t k = 0; k < m_x.size(); ++k)
        if (m_free[k]) m_x[k] = std::max(0.0, m_x[k] + share * (wanted[k] - m_x[k]));
      if (first_at_zero == m_x.size()) return;
      m_x[first_at_zero] = 0;
      m_free[first_at_zero] = false;
    }
  }

  /// Least squares of the free unknowns by Cholesky; a column that the earlier ones span gets 0.
  std::vector<double> unconstrained() const {
    std::vector<std::size_t> index;
    for (std::size_t k = 0; k < m_x.size(); ++k)
      if (m_free[k]) index.push_back(k);
    std::size_t const n = index.size();
    Matrix lower(n, std::vector<double>(n, 0.0));
    std::vector<double> y(n, 0.0);
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j <= i; ++j) {
        double sum = m_gram[index[i]][index[j]];
        for (std::size_t k = 0; k < j; ++k) sum -= lower[i][k] * lower[j][k];
        if (i == j)
          lower[i][i] = sum > 1e-13 ? std::sqrt(sum) : 0;
        else
          lower[i][j] = lower[j][j] > 0 ? sum / lower[j][j] : 0;
      }
      double sum = m_right[index[i]];
      for (std::size_t k = 0; k < i; ++k) sum -= lower[i][k] * y[k];
      y[i] = lower[i][i] > 0 ? sum / lower[i][i] : 0;
    }
    std::vector<double> x(m_x.size(), 0.0);
    for (std::size_t i = n; i-- > 0;) {
      double sum = y[i];
      for (std::size_t k = i + 1; k < n; ++k) sum -= lower[k][i] * x[index[k]];
      x[index[i]] = lower[i][i] > 0 ? sum / lower[i][i] : 0;
    }
    return x;
  }

  Matrix m_gram;
  std::vector<double> m_right;
  std::vector<double> m_x;
  std::vector<bool> m_free;
};

} // namespace

std::vector<double> non_negative_least_squares(std::vector<Column> const& columns, Column const& target) {
  std::size_t const unknowns = columns.size();
  std::vector<double> length(unknowns, 0.0);
  for (std::size_t k = 0; k < unknowns; ++k) {
    TRAINSTONE_REQUIRE(columns[k].size() == target.size(), "column {} has {} values, the target {}", k,
                       columns[k].size(), target.size());
    length[k] = std::sqrt(dot(columns[k], columns[k]));
  }
  Matrix gram(unknowns, std::vector<double>(unknowns, 0.0));
  std::vector<double> right(unknowns, 0.0);
  for (std::size_t i = 0; i < unknowns; ++i) {
    if (length[i] == 0) continue; // adds nothing: its row and column stay 0, and so does the unknown
    right[i] = dot(columns[i], target) / length[i];
    for (std::size_t j = 0; j < unknowns; ++j)
      if (length[j] > 0) gram[i][j] = dot(columns[i], columns[j]) / (length[i] * length[j]);
  }
  if (unknowns == 0) return {};
  std::vector<double> x = Solver(std::move(gram), std::move(right)).solve();
  for (std::size_t k = 0; k < unknowns; ++k) x[k] = length[k] > 0 ? x[k] / length[k] : 0;
  return x;
}

} // namespace trainstone::Impl
