#pragma once

// Gradients as the simulator of steps sees them: not numbers, but which micro-batches of which ranks are in them.

#include "comm/schedule/partition.hpp"
#include "core/index.hpp"

#include <cstdint>
#include <vector>

namespace trainstone::Impl {

/// What a piece of a part's backward adds to a gradient in one micro-batch.
struct Contribution {
  Index micro_batch; ///< of the whole batch: rank x micro-batches per rank + number on the rank
  Index part;
  Index piece;
};

/// A sum of contributions. Each contribution has a hash of 64 bits, and hashes are added up. Two sums of different
/// contributions are equal by chance only, in one of 2^64 cases.
class ContributionSum {
public:
  ContributionSum() = default;
  explicit ContributionSum(Contribution const& one) : m_sum(number_of(one)), m_defined(true) {}
  static ContributionSum nothing() {
    ContributionSum sum;
    sum.m_defined = true;
    return sum;
  }

  /// Whether memory holds a sum. Otherwise it holds what nobody may read.
  bool is_defined() const { return m_defined; }
  void operator+=(ContributionSum const& other) {
    m_sum += other.m_sum;
    m_defined = m_defined && other.m_defined;
  }
  bool operator==(ContributionSum const&) const = default;
  /// Whether this is `other` without `one`.
  bool lacks(ContributionSum const& other, ContributionSum const& one) const {
    return m_sum + one.m_sum == other.m_sum;
  }

private:
  static std::uint64_t number_of(Contribution const& one);

  std::uint64_t m_sum = 0;
  bool m_defined = false;
};

/// The elements of a gradient that a bucket takes, on one rank. Slice o belongs to owner o of the group.
struct GradientCell {
  Index bucket;
  Index run;                                              ///< of the bucket
  Index gradient;                                         ///< of GradientLayout::gradients
  Index group;                                            ///< whose gradient it is
  Index unit;                                             ///< that the group is in
  bool looked_up;                                         ///< embed's part alone
  std::vector<Range> elements = {};                       ///< of the group, by slice
  bool fresh_in_use = false, sums_in_use = false;         ///< by a collective that nobody has waited for
  std::vector<ContributionSum> fresh = {};                ///< by slice
  std::vector<ContributionSum> sums = {};                 ///< by slice; of micro-batches
  std::vector<std::vector<ContributionSum>> waiting = {}; ///< by level of the tree over micro-batches, by slice
};

} // namespace trainstone::Impl
