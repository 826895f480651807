#pragma once

// The sum of the losses of all micro-batches of a global batch.

#include <cstddef>
#include <vector>

namespace trainstone {

/// In the balanced binary tree over their numbers, so that it has the same bits for every split of them. 0 of none.
inline double total_of_losses(std::vector<double> values) {
  std::size_t const count = values.size();
  for (std::size_t stride = 1; stride < count; stride *= 2)
    for (std::size_t i = 0; i + stride < count; i += 2 * stride) values[i] += values[i + stride];
  return values.empty() ? 0 : values.front();
}

} // namespace trainstone
