// The plain Kokkos matrix product: runs everywhere, needs no library, is no race car. A team computes one tile of C;
// it walks through k in blocks, packs the blocks of op(A) and op(B) into its scratch (which undoes transposes and pads
// with zeros), and each thread or vector lane multiplies small patches of C in registers.
// One row of sums per element of C and block, blocks added in order: the same bits on every run and any team size.

#include "kernels/gemm_impl.hpp"

#include "core/launch.hpp"

#include <algorithm>
#include <type_traits>

namespace trainstone::Impl {

namespace {

/// A patch of 6 by 32 fills the vector registers of AVX-512 (and of AVX-512VL in halves); tiles fit L2, and the packed
/// columns of one patch L1. Wants 130 kB of scratch.
struct HostTile {
  static constexpr int rows = 132, columns = 128, depth = 128;
  static constexpr int patch_rows = 6, patch_columns = 32;
  static constexpr int team_size = 1, vector_length = 1;
  static constexpr int scratch_level = 1;
};

/// 256 threads with a patch of 4 by 4 each; 32 kB of shared memory.
struct DeviceTile {
  static constexpr int rows = 64, columns = 64, depth = 64;
  static constexpr int patch_rows = 4, patch_columns = 4;
  static constexpr int team_size = 16, vector_length = 16;
  static constexpr int scratch_level = 0;
};

using Tile =
    std::conditional_t<Kokkos::SpaceAccessibility<Kokkos::HostSpace, MemorySpace>::accessible, HostTile, DeviceTile>;

KOKKOS_INLINE_FUNCTION constexpr Index divide_up(Index value, Index by) { return (value + by - 1) / by; }

/// op(A) or op(B) as seen from C: `outer` is the index that C shares (row of A, column of B), `inner` is k.
struct Operand {
  float const* data;
  Index outer_stride, inner_stride; // one of them is 1
};

struct GemmKernel {
  using Team = Kokkos::TeamPolicy<ExecutionSpace>::member_type;
  using Scratch = Kokkos::View<float*, ExecutionSpace::scratch_memory_space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;

  static constexpr int a_size = Tile::rows * Tile::depth;
  static constexpr int b_size = Tile::columns * Tile::depth;
  static_assert(Tile::rows % Tile::patch_rows == 0 && Tile::columns % Tile::patch_columns == 0);

  Operand a, b;
  float* c;
  Index m, n, k;
  Index column_tiles;
  bool overwrite;

  static std::size_t scratch_bytes() { return Scratch::shmem_size(a_size) + Scratch::shmem_size(b_size); }

  KOKKOS_FUNCTION void operator()(Team const& team) const {
    Index const row = team.league_rank() / column_tiles * Tile::rows;
    Index const column = team.league_rank() % column_tiles * Tile::columns;
    int const rows = static_cast<int>(Kokkos::min<Index>(Tile::rows, m - row));
    int const columns = static_cast<int>(Kokkos::min<Index>(Tile::columns, n - column));
    Scratch const a_block(team.team_scratch(Tile::scratch_level), a_size);
    Scratch const b_block(team.team_scratch(Tile::scratch_level), b_size);
    Index inner = 0;
    do { // at least once: k = 0 writes zeros
      int const depth = static_cast<int>(Kokkos::min<Index>(Tile::depth, k - inner));
      pack<Tile::patch_rows>(team, a, row, rows, inner, depth, a_block.data());
      pack<Tile::patch_columns>(team, b, column, columns, inner, depth, b_block.data());
      team.team_barrier();
      multiply(team, a_block.data(), b_block.data(), depth, row, rows, column, columns, overwrite && inner == 0);
      team.team_barrier();
      inner += depth;
    } while (inner < k);
  }

  /// packed[panel][inner][Width] = operand(outer + panel * Width + lane, inner); lanes beyond `count` are zero.
  template <int Width>
  KOKKOS_FUNCTION static void pack(Team const& team, Operand const& operand, Index outer, int count, Index inner,
                                   int depth, float* packed) {
    float const* const source = operand.data + outer * operand.outer_stride + inner * operand.inner_stride;
    int const panels = static_cast<int>(divide_up(count, Width));
    if (operand.outer_stride == 1) {
      Kokkos::parallel_for(Kokkos::TeamThreadRange(team, panels), [&](int p) {
        Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, depth), [&](int i) {
          for (int lane = 0; lane < Width; ++lane) {
            int const o = p * Width + lane;
            packed[(p * depth + i) * Width + lane] = o < count ? source[o + i * operand.inner_stride] : 0.0f;
          }
        });
      });
    } else {
      Kokkos::parallel_for(Kokkos::TeamThreadRange(team, panels * Width), [&](int o) {
        Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, depth), [&](int i) {
          packed[(o / Width * depth + i) * Width + o % Width] = o < count ? source[o * operand.outer_stride + i] : 0.0f;
        });
      });
    }
  }

  KOKKOS_FUNCTION void multiply(Team const& team, float const* a_block, float const* b_block, int depth, Index row,
                                int rows, Index column, int columns, bool replace) const {
    constexpr int height = Tile::patch_rows, width = Tile::patch_columns;
    int const row_patches = static_cast<int>(divide_up(rows, height));
    int const column_patches = static_cast<int>(divide_up(columns, width));
    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, row_patches * column_patches), [&](int patch) {
      int const i = patch % row_patches * height, j = patch / row_patches * width;
      multiply_patch(a_block + i * depth, b_block + j * depth, depth, c + (row + i) * n + column + j, n,
                     Kokkos::min(height, rows - i), Kokkos::min(width, columns - j), replace);
    });
  }

  /// The sums stay in registers through the loop over k, where the compiler vectorises the columns. Not inlined: in
  /// some surroundings g++ 16 then keeps the sums in memory (33 instead of 90 GF/s with Kokkos 5.2 OpenMP).
  [[gnu::noinline]] KOKKOS_FUNCTION static void multiply_patch(float const* KOKKOS_RESTRICT a_panel,
                                                               float const* KOKKOS_RESTRICT b_panel, int depth,
                                                               float* KOKKOS_RESTRICT out, Index out_stride, int rows,
                                                               int columns, bool replace) {
    constexpr int height = Tile::patch_rows, width = Tile::patch_columns;
    float sums[height][width] = {};
    for (int i = 0; i < depth; ++i) {
      for (int r = 0; r < height; ++r) {
        float const factor = a_panel[i * height + r];
        for (int s = 0; s < width; ++s) sums[r][s] += factor * b_panel[i * width + s];
      }
    }
    for (int r = 0; r < rows; ++r) {
      float* const out_row = out + r * out_stride;
      for (int s = 0; s < columns; ++s) out_row[s] = replace ? sums[r][s] : out_row[s] + sums[r][s];
    }
  }
};

} // namespace

void kokkos_gemm(ExecutionSpace const& exec, GemmShape const& shape, float const* a, float const* b, float* c) {
  Index const column_tiles = divide_up(shape.n, Tile::columns);
  Index const tiles = divide_up(shape.m, Tile::rows) * column_tiles;
  Operand const left = shape.a == Transpose::no ? Operand{a, shape.k, 1} : Operand{a, 1, shape.m};
  Operand const right = shape.b == Transpose::no ? Operand{b, 1, shape.n} : Operand{b, shape.k, 1};
  auto const policy =
      Kokkos::TeamPolicy<ExecutionSpace>(exec, static_cast<int>(tiles), Tile::team_size, Tile::vector_length)
          .set_scratch_size(Tile::scratch_level, Kokkos::PerTeam(GemmKernel::scratch_bytes()));
  launch_for({"trainstone::gemm", Phase::gemm, shape.flops(), shape.bytes()}, policy,
             GemmKernel{left, right, c, shape.m, shape.n, shape.k, column_tiles, shape.mode == Write::overwrite});
}

} // namespace trainstone::Impl
