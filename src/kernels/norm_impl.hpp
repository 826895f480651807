#pragma once

// Bodies of norm.hpp; included by norm.cpp alone.

#include "kernels/norm.hpp"

#include "kernels/common/flat.hpp"
#include "kernels/common/shapes.hpp"

namespace trainstone {

namespace Impl {

/// A block is summed in so many lanes: element i in lane i modulo 32, then the lanes in a balanced tree. Enough sums
/// for the latency of an addition on vectors of any width.
inline constexpr int block_lanes = 32;
static_assert(norm_block % block_lanes == 0);

/// The sum of value(i) over a block, by one thread.
template <class Value>
KOKKOS_INLINE_FUNCTION float block_sum(Value const& value) {
  constexpr Index lanes = block_lanes;
  float sums[lanes];
  vector_for(lanes, [&](Index lane) { sums[lane] = value(lane); });
  for (Index begin = lanes; begin < norm_block; begin += lanes)
    vector_for(lanes, [&](Index lane) { sums[lane] += value(begin + lane); });
  for (Index width = lanes / 2; width > 0; width /= 2)
    vector_for(width, [&](Index lane) { sums[lane] += sums[lane + width]; });
  return sums[0];
}

/// Blocks of a chunk one after the other.
template <class T>
struct HostBlocks {
  static constexpr Index blocks = chunk_size / norm_block;

  static RowPolicy policy(ExecutionSpace const& exec, Index count) {
    return row_policy(exec, divide_up(count, blocks));
  }

  KOKKOS_INLINE_FUNCTION static void sum([[maybe_unused]] Team const& team, T const* x, Index count, double* sums) {
    for (Index i = 0; i < count; ++i)
      sums[i] = block_sum([&](Index j) {
        float const value = to_float(x[i * norm_block + j]);
        return value * value;
      });
  }
};

/// So many neighbours of a warp share a block. Each reads packets, and has the lanes of the sum that they are in: the
/// packets of one are as far apart as there are lanes.
template <class T>
struct DeviceBlocks {
  static constexpr int packet = packet_of<T>, sharers = block_lanes / packet, threads = 128;
  static constexpr Index blocks = threads / sharers;

  static RowPolicy policy(ExecutionSpace const& exec, Index count) {
    return {exec, static_cast<int>(divide_up(count, blocks)), threads};
  }

  /// The sum of squares of a block, known to all sharers. \param[in] lane  of the warp, for a test one that is played
  template <class Lane>
  KOKKOS_INLINE_FUNCTION static float sum_of_block(T const* block, int sharer, bool aligned, Lane&& lane) {
    constexpr int packets = static_cast<int>(norm_block) / block_lanes;
    Packet<float, packet> terms[packets];
    TRAINSTONE_ALL_AT_ONCE
    for (int k = 0; k < packets; ++k) {
      T const* const from = block + k * block_lanes + sharer * packet;
      if (aligned)
        terms[k] = load_floats<packet>(from);
      else
        for (int i = 0; i < packet; ++i) terms[k][i] = to_float(from[i]);
    }
    float sums[packet];
    for (int i = 0; i < packet; ++i) sums[i] = terms[0][i] * terms[0][i];
    TRAINSTONE_ALL_AT_ONCE
    for (int k = 1; k < packets; ++k)
      for (int i = 0; i < packet; ++i) sums[i] += terms[k][i] * terms[k][i];
    for (int difference = sharers / 2; difference > 0; difference /= 2)
      for (int i = 0; i < packet; ++i) sums[i] += lane.from_lane_beside(sums[i], difference);
    for (int width = packet / 2; width > 0; width /= 2)
      for (int i = 0; i < width; ++i) sums[i] += sums[i + width];
    return sums[0];
  }

  /// Threads without a block compute the last one once more: warps are complete where their lanes exchange values.
  KOKKOS_INLINE_FUNCTION static void sum(Team const& team, T const* x, Index count, double* sums) {
    bool const aligned = reinterpret_cast<std::uintptr_t>(x) % (packet * sizeof(T)) == 0;
    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, int{threads}), [&](int thread) {
      Index const block = thread / sharers;
      int const sharer = thread % sharers;
      float const squares = sum_of_block(x + minimum(block, count - 1) * norm_block, sharer, aligned, WarpLane());
      if (sharer == 0 && block < count) sums[block] = squares;
    });
  }
};

template <class T>
using Blocks = std::conditional_t<host_reaches_memory, HostBlocks<T>, DeviceBlocks<T>>;

} // namespace Impl

template <class T>
void squared_block_sums(ExecutionSpace const& exec, Vector<T const> x, Vector<double> block_sums) {
  Index const count = Impl::extent(x, 0), blocks = count / norm_block;
  TRAINSTONE_REQUIRE(count % norm_block == 0, "squared_block_sums: {} elements are not whole blocks of {}", count,
                     norm_block);
  Impl::require_shape("squared_block_sums: block_sums", block_sums, {blocks});
  Kernel const kernel{.label = "trainstone::norm::blocks",
                      .flops = 2 * x.size(),
                      .bytes = x.size() * sizeof(T) + block_sums.size() * sizeof(double)};
  launch_for(
      kernel, Impl::Blocks<T>::policy(exec, blocks), KOKKOS_LAMBDA(Impl::Team const& team) {
        Index const first = team.league_rank() * Impl::Blocks<T>::blocks;
        Impl::Blocks<T>::sum(team, x.data() + first * norm_block,
                             Impl::minimum(Impl::Blocks<T>::blocks, blocks - first), block_sums.data() + first);
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
