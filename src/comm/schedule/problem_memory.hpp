#pragma once

// What was computed of a problem and an algorithm, for those who ask again: a schedule of 65,536 ranks takes a
// millisecond to be made, and a second to be priced. Owns when two problems are the same. Not for several threads.

#include "comm/schedule/problem.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

namespace trainstone {

template <class Value>
class ProblemMemory {
public:
  /// \param[in] most  of values; one more, and all are forgotten. Each keeps the offsets of its problem's partition.
  explicit ProblemMemory(std::size_t most = std::numeric_limits<std::size_t>::max()) : m_most(most) {}

  /// \param[in] detail   what else the value follows from: the rank, or the bytes of an element
  /// \param[in] compute  () -> Value: called if the problem is new
  template <class Compute>
  Value of(Problem const& problem, Algorithm algorithm, std::uint64_t detail, Compute const& compute) {
    Key const key = key_of(problem, algorithm, detail);
    for (auto const& [other, known] : m_known[key])
      if (other.partition == problem.partition && other.topology == problem.topology) return known;
    Value const value = compute();
    if (m_count++ == m_most) {
      m_known.clear();
      m_count = 1;
    }
    return m_known[key].emplace_back(problem, value).second;
  }

private:
  using Key =
      std::tuple<Collective, Algorithm, std::uint64_t, Rank, Rank, Rank, bool, Index, std::uint64_t, std::uint64_t>;

  static Key key_of(Problem const& problem, Algorithm algorithm, std::uint64_t detail) {
    return {problem.collective,
            algorithm,
            detail,
            problem.root,
            problem.servers,
            problem.distance,
            problem.shared_memory,
            problem.segment,
            problem.partition.fingerprint().value(),
            problem.topology.fingerprint().value()};
  }

  std::map<Key, std::vector<std::pair<Problem, Value>>> m_known;
  std::size_t m_count = 0;
  std::size_t m_most;
};

} // namespace trainstone
