#pragma once

// Where a team's tiles lie. Owns the arithmetic: a struct of tiles is made from a pool, on the host to count what a
// launch must ask for, in the kernel to get it, so that there is no second list of sizes. Included by k_impl.hpp files
// only.

#include "core/error.hpp"
#include "kernels/gemm/tile_product.hpp"

#include <limits>

namespace trainstone::Impl {

/// Hands out pieces of a team's scratch, aligned for vectors; from a null pointer, counts what is asked for.
struct ScratchPool {
  static constexpr Index alignment = 64;
  float* base = nullptr;
  Index floats = 0;

  KOKKOS_INLINE_FUNCTION float* take(Index count) {
    Index const begin = floats;
    floats += round_up(count, alignment / Index{sizeof(float)});
    return base == nullptr ? nullptr : base + begin;
  }
  KOKKOS_INLINE_FUNCTION Tile take(Index rows, Index columns) { return {take(rows * columns), columns}; }
  KOKKOS_INLINE_FUNCTION std::size_t bytes() const { return static_cast<std::size_t>(floats) * sizeof(float); }
};

/// What a kernel asks of the scratch: tiles, in shared memory where they fit, and rows of a whole head.
struct ScratchNeeds {
  std::size_t tiles, rows;

  KOKKOS_INLINE_FUNCTION int tiles_level() const { return tiles < Tiles::fast_scratch ? 0 : 1; }
  KOKKOS_INLINE_FUNCTION ScratchPool take_tiles(Team const& team) const { return take(team, tiles_level(), tiles); }
  KOKKOS_INLINE_FUNCTION ScratchPool take_rows(Team const& team) const { return take(team, 1, rows); }
  RowPolicy policy(ExecutionSpace const& exec, Index teams) const {
    TRAINSTONE_REQUIRE(teams <= std::numeric_limits<int>::max(), "{} teams are more than Kokkos can start", teams);
    RowPolicy result(exec, static_cast<int>(teams), Tiles::team_size, Tiles::vector_length);
    std::size_t sizes[2] = {0, rows == 0 ? 0 : rows + ScratchPool::alignment};
    sizes[tiles_level()] += tiles + ScratchPool::alignment;
    for (int level = 0; level < 2; ++level) result.set_scratch_size(level, Kokkos::PerTeam(sizes[level]));
    return result;
  }

private:
  KOKKOS_INLINE_FUNCTION static ScratchPool take(Team const& team, int level, std::size_t bytes) {
    return {static_cast<float*>(team.team_scratch(level).get_shmem_aligned(bytes, ScratchPool::alignment)), 0};
  }
};

} // namespace trainstone::Impl
