#pragma once

// Body of initialize.hpp; included by initialize.cpp alone.

#include "kernels/initialize.hpp"

#include "core/launch.hpp"
#include "core/random.hpp"
#include "core/types.hpp"

namespace trainstone {

template <class T>
void normal_fill(ExecutionSpace const& exec, std::uint64_t seed, Index first_counter, double stddev, Vector<T> out) {
  Kernel const kernel{
      .label = "trainstone::initialize::normal", .flops = 10 * out.size(), .bytes = out.size() * sizeof(T)};
  using Blocks = Kokkos::RangePolicy<ExecutionSpace, Kokkos::IndexType<Index>>;
  auto const count = static_cast<Index>(out.extent(0));
  Index const end = first_counter + count;
  launch_for(
      kernel, Blocks(exec, first_counter / 4, (end + 3) / 4), KOKKOS_LAMBDA(Index block) {
        NormalBlock const normals = normal_block(seed, RandomStream::initial_values, static_cast<std::uint64_t>(block));
        for (Index j = 0; j < 4; ++j) {
          Index const i = 4 * block + j - first_counter;
          if (i >= 0 && i < count) out(i) = from_float<T>(static_cast<float>(stddev * normals.values[j]));
        }
      });
}

} // namespace trainstone
