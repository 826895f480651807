#include "comm/algorithms/contributions.hpp"

#include "core/error.hpp"

namespace trainstone {

void append_sum_in_order(ScheduleBuilder& builder, std::vector<Slice> const& contributions, std::size_t own) {
  TRAINSTONE_REQUIRE(own < contributions.size(), "no contribution {} among {}", own, contributions.size());
  Slice sum = contributions[0];
  for (std::size_t i = 1; i < contributions.size(); ++i) {
    if (i == own) { // a + b and b + a have the same bits: the sum moves to its place without a copy
      builder.reduce(sum, contributions[i]);
      sum = contributions[i];
    } else {
      builder.reduce(contributions[i], sum);
    }
  }
}

void append_sum_in_tree(ScheduleBuilder& builder, std::vector<Slice> const& contributions) {
  for (std::size_t stride = 1; stride < contributions.size(); stride *= 2)
    for (std::size_t i = 0; i + stride < contributions.size(); i += 2 * stride)
      builder.reduce(contributions[i + stride], contributions[i]);
}

} // namespace trainstone
