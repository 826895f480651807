#pragma once

// Bodies of norm.hpp; included by norm.cpp alone.

#include "kernels/norm.hpp"

#include "core/launch.hpp"
#include "kernels/common/row.hpp"
#include "kernels/common/shapes.hpp"

namespace trainstone {

namespace Impl {

/// The sum of value(i) over a block. On hosts element i is added in lane i modulo 32, and the lanes are added in a
/// balanced tree: enough sums for the latency of an addition on vectors of any width, and the same bits for each.
template <class Value>
KOKKOS_INLINE_FUNCTION float block_sum(Value const& value) {
  constexpr Index lanes = 32;
  static_assert(norm_block % lanes == 0);
  float sums[lanes];
  vector_for(lanes, [&](Index lane) { sums[lane] = value(lane); });
  for (Index begin = lanes; begin < norm_block; begin += lanes)
    vector_for(lanes, [&](Index lane) { sums[lane] += value(begin + lane); });
  for (Index width = lanes / 2; width > 0; width /= 2)
    vector_for(width, [&](Index lane) { sums[lane] += sums[lane + width]; });
  return sums[0];
}

} // namespace Impl

template <class T>
void squared_block_sums(ExecutionSpace const& exec, Vector<T const> x, Vector<double> block_sums) {
  Index const count = Impl::extent(x, 0), blocks = count / norm_block;
  TRAINSTONE_REQUIRE(count % norm_block == 0, "squared_block_sums: {} elements are not whole blocks of {}", count,
                     norm_block);
  Impl::require_shape("squared_block_sums: block_sums", block_sums, {blocks});
  Index const chunk = Impl::chunk_size / norm_block;
  Kernel const kernel{.label = "trainstone::norm::blocks",
                      .flops = 2 * x.size(),
                      .bytes = x.size() * sizeof(T) + block_sums.size() * sizeof(double)};
  launch_for(
      kernel, Impl::row_policy(exec, Impl::divide_up(blocks, chunk)), KOKKOS_LAMBDA(Impl::Team const& team) {
        Index const first = team.league_rank() * chunk;
        Impl::team_for(team, Impl::minimum(chunk, blocks - first), [&](Index i) {
          T const* const block = x.data() + (first + i) * norm_block;
          block_sums(first + i) = Impl::block_sum([&](Index j) {
            float const value = to_float(block[j]);
            return value * value;
          });
        });
      });
}

template <class T>
void count_non_finite(ExecutionSpace const& exec, Vector<T const> x, Vector<std::int64_t> result) {
  Impl::require_shape("count_non_finite: result", result, {1});
  Kernel const kernel{.label = "trainstone::norm::count_non_finite", .bytes = x.size() * sizeof(T) + 8};
  using Elements = Kokkos::RangePolicy<ExecutionSpace, Kokkos::IndexType<Index>>;
  using Count = Kokkos::View<std::int64_t, MemorySpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
  launch_reduce(
      kernel, Elements(exec, 0, Impl::extent(x, 0)),
      KOKKOS_LAMBDA(Index i, std::int64_t& count) { count += Kokkos::isfinite(to_float(x(i))) ? 0 : 1; },
      Count(result.data()));
}

} // namespace trainstone
