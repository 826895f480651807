#pragma once

// Prices of collectives on one machine and network, which the timelines of several plans share: a ring of 65,536 ranks
// takes a second to be priced. Owns when two problems are the same. Not for several threads.

#include "comm/schedule/problem.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

namespace trainstone {

/// In s.
struct RememberedPrice {
  double all = 0;
  double core = 0; ///< of this, what cores do with their own hands
};

class PriceMemory {
public:
  /// \param[in] price  () -> RememberedPrice: called if the problem is new
  template <class Price>
  RememberedPrice of(Problem const& problem, Algorithm algorithm, std::size_t element_bytes, Price const& price) {
    std::vector<std::pair<Problem, RememberedPrice>>& alike = m_known[key_of(problem, algorithm, element_bytes)];
    for (auto const& [other, known] : alike)
      if (other.partition == problem.partition && other.topology == problem.topology) return known;
    return alike.emplace_back(problem, price()).second;
  }

private:
  using Key =
      std::tuple<Collective, Algorithm, std::size_t, Rank, Rank, Rank, bool, Index, std::uint64_t, std::uint64_t>;

  static Key key_of(Problem const& problem, Algorithm algorithm, std::size_t element_bytes) {
    return {problem.collective,
            algorithm,
            element_bytes,
            problem.root,
            problem.servers,
            problem.distance,
            problem.shared_memory,
            problem.segment,
            problem.partition.fingerprint().value(),
            problem.topology.fingerprint().value()};
  }

  std::map<Key, std::vector<std::pair<Problem, RememberedPrice>>> m_known;
};

} // namespace trainstone
