#pragma once

// Data by which a collective's result can be checked with ==. Owns what every rank puts in and what it must find
// afterwards, worked out from the meaning of the collective (expected_results.hpp) without any schedule. Promises:
// whole numbers, positive and negative, that the type holds exactly, also as sums of any of the ranks' contributions,
// so that the order of additions does not show; a rank's elements differ, and ranks' values of one element do, as long
// as the type has room for that; where it has none, neighbours differ, but for few, and no two ranks are alike in all
// elements; what a rank does not hold at the start is poisoned. Host memory.

#include "comm/schedule/element.hpp"
#include "comm/schedule/expected_results.hpp"
#include "comm/schedule/problem.hpp"
#include "core/index.hpp"

#include <cstdint>
#include <span>

namespace trainstone {

class ExactData {
public:
  /// Whether the type adds up whole numbers of so many ranks exactly.
  static bool takes(ElementType type, Rank ranks);
  /// \throws InputError if there are more ranks than the type can add up exactly (bf16: 256)
  ExactData(Problem problem, Operation operation, ElementType type);

  /// What `rank` starts with. \param[out] data (problem.elements())
  template <class T>
  void fill(Rank rank, std::span<T> data) const;
  /// How many of the elements that the collective defines on `rank` are not as they must be. \param[in] data as above
  template <class T>
  Index wrong(Rank rank, std::span<T const> data) const;

private:
  std::int64_t start(Rank rank, Index round) const;
  void sum(Rank first, Rank last, Index element, std::span<std::int64_t> values) const;
  void expected(Impl::Expected const& result, Index first, std::span<std::int64_t> values) const;

  Problem m_problem;
  Operation m_operation;
  std::int64_t m_largest; ///< contributions lie between -m_largest and m_largest
  std::int64_t m_period;  ///< so many values there are
};

} // namespace trainstone
