#pragma once

// The smallest of values of which one changes at a time. A value.

#include <bit>
#include <cstddef>
#include <vector>

namespace trainstone {

/// A tree in which the smaller one of two neighbours goes on; of equal ones the first.
template <class Value>
class Tournament {
public:
  /// \param[in] count  of values, at least 1   \param[in] value  of all of them; no value is larger
  Tournament(std::size_t count, Value value)
      : m_leaves(std::bit_ceil(count)), m_values(m_leaves, value), m_winners(m_leaves) {
    for (std::size_t node = m_leaves - 1; node > 0; --node) m_winners[node] = winner_below(node);
  }

  /// Complexity: O(log(count)).
  void set(std::size_t number, Value value) {
    m_values[number] = value;
    for (std::size_t node = (m_leaves + number) / 2; node > 0; node /= 2) m_winners[node] = winner_below(node);
  }
  /// The number of the smallest value, of equal ones the first.
  std::size_t first() const { return winner(1); }
  Value smallest() const { return m_values[first()]; }

private:
  /// Nodes 1 ... m_leaves - 1 have two below them, 2 n and 2 n + 1; behind them follow the values.
  std::size_t winner(std::size_t node) const { return node < m_leaves ? m_winners[node] : node - m_leaves; }
  std::size_t winner_below(std::size_t node) const {
    std::size_t const left = winner(2 * node), right = winner(2 * node + 1);
    return m_values[right] < m_values[left] ? right : left;
  }

  std::size_t m_leaves;
  std::vector<Value> m_values;
  std::vector<std::size_t> m_winners; ///< by node
};

} // namespace trainstone
