#pragma once

// Instances of the execution space that are not the default one.

#include "core/views.hpp"

#include <algorithm>
#include <type_traits>
#include <vector>

namespace trainstone::test {

/// Kokkos' own partition_space hands out the OpenMP back end's default instance unless OpenMP is set up for nesting.
template <class Space>
Space new_instance(int threads) {
  if constexpr (std::is_constructible_v<Space, int>)
    return Space(threads);
  else
    return Kokkos::Experimental::partition_space(Space(), std::vector<int>{1}).front();
}

/// Another instance with as many threads as the default one.
inline ExecutionSpace distinct_instance() { return new_instance<ExecutionSpace>(ExecutionSpace().concurrency()); }

/// An instance with half of the default one's threads, where the back end can have that.
inline ExecutionSpace smaller_instance() {
  return new_instance<ExecutionSpace>(std::max(1, ExecutionSpace().concurrency() / 2));
}

} // namespace trainstone::test
