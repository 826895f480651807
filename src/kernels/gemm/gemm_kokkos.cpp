// The plain Kokkos matrix product: runs everywhere and needs no library. A team computes one tile of C; it walks
// through k in blocks, packs its operands into its scratch (which undoes transposes and pads with zeros), and each
// thread or vector lane multiplies small patches of C in registers. On hosts fp32 rows of op(A) that are contiguous
// serve where they lie, a whole patch of them at a time. One row of sums per element of C and block, blocks added in
// order: the same bits on every run and any team size. Operands become fp32 as they are packed. A C of 16 bits is added
// up in fp32 in the scratch and rounded once.

#include "kernels/gemm/gemm_impl.hpp"

#include "core/launch.hpp"
#include "core/types.hpp"
#include "kernels/common/row.hpp"
#include "kernels/gemm/tile_product.hpp"

#include <algorithm>
#include <type_traits>

namespace trainstone::Impl {

namespace {

/// Columns of op(B) that are packed at once.
inline constexpr int strip = 64;

/// A host's team is one thread. The sums of a patch fill the vector registers but for the operands: 6 by 32 with
/// AVX-512 (halves of 256 bits, too), 6 by 16 without.
struct Host {
  static constexpr int patch_rows = 6;
#ifdef __AVX512F__
  static constexpr int patch_columns = 32;
#else
  static constexpr int patch_columns = 16;
#endif
  static constexpr int team_size = 1, vector_length = 1;
  static constexpr int scratch_level = 1;
  static constexpr int group = 8; // rows that are packed as columns at once: their elements become one vector
};

/// Where rows of op(A) are contiguous. A strip of op(B) stays in L2 for all rows of the tile, and is so deep that
/// GPT-2's sums seldom leave the registers. Wants 220 kB of scratch, 180 kB where C has 16 bits.
struct RowTile : Host {
  static constexpr bool packs_left = false;
  static constexpr int rows = 264, columns = strip, depth = 768;
};

/// Where they are not, as in weight gradients, op(A) is packed into L2 once per tile and block, and the columns of a
/// patch stay in L1 (16 kB; with AVX-512 32 kB, which not every such processor has room for). Wants 260 kB of scratch,
/// 230 kB where C has 16 bits.
struct StepTile : Host {
  static constexpr bool packs_left = true;
  static constexpr int rows = 192, columns = 384, depth = 256;
};

/// 256 threads with a patch of 4 by 4 each; 32 kB of shared memory.
struct DeviceTile {
  static constexpr int patch_rows = 4, patch_columns = 4;
  static constexpr int team_size = 16, vector_length = 16;
  static constexpr int scratch_level = 0;
  static constexpr int group = 4;
  static constexpr bool packs_left = true;
  static constexpr int rows = 64, columns = strip, depth = 64;
};

/// op(A) or op(B) as seen from C: `outer` is the index that C shares (row of A, column of B), `inner` is k.
template <class T>
struct Operand {
  T const* data;
  Index outer_stride, inner_stride; // one of them is 1
};

template <class Input, class Output, class Tile>
struct GemmKernel {
  using Team = Kokkos::TeamPolicy<ExecutionSpace>::member_type;
  /// The rows of op(A) that one patch multiplies: packed step by step as the sums take them, or where they lie.
  using Left = std::conditional_t<Tile::packs_left, ColumnsOf, RowsOf>;
  using Scratch = Kokkos::View<float*, ExecutionSpace::scratch_memory_space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;

  static constexpr bool sums_in_place = std::is_same_v<Output, float>;
  /// Blocks of half the depth and fewer columns make room for the sums.
  static constexpr int tile_depth = sums_in_place ? Tile::depth : Tile::depth / 2;
  static constexpr int most_columns = sums_in_place ? Tile::columns : std::min(Tile::columns, 2 * strip);
  static constexpr int a_size = (Tile::packs_left ? Tile::rows : Tile::patch_rows) * tile_depth;
  static constexpr int b_size = strip * tile_depth;
  static constexpr int c_size = sums_in_place ? 0 : Tile::rows * most_columns;
  static_assert(Tile::rows % (4 * Tile::patch_rows) == 0 && most_columns % strip == 0);
  static_assert(strip % Tile::patch_columns == 0);
  static_assert(Tile::packs_left || Tile::team_size * Tile::vector_length == 1);

  Operand<Input> a, b;
  Output* c;
  Index m, n, k;
  Index tile_rows, tile_columns;
  bool overwrite;

  static std::size_t scratch_bytes() {
    return Scratch::shmem_size(a_size) + Scratch::shmem_size(b_size) + Scratch::shmem_size(c_size);
  }

  KOKKOS_FUNCTION void operator()(Team const& team) const {
    Index const column_tiles = divide_up(n, tile_columns);
    Index const row = team.league_rank() / column_tiles * tile_rows;
    Index const column = team.league_rank() % column_tiles * tile_columns;
    int const rows = static_cast<int>(Kokkos::min<Index>(tile_rows, m - row));
    int const columns = static_cast<int>(Kokkos::min<Index>(tile_columns, n - column));
    constexpr int level = Tile::scratch_level; // taken by reference, which device code cannot do with a member
    Scratch const a_block(team.team_scratch(level), a_size);
    Scratch const b_block(team.team_scratch(level), b_size);
    Scratch const c_block(team.team_scratch(level), c_size);
    float* sums;
    Index stride;
    if constexpr (sums_in_place) {
      sums = c + row * n + column;
      stride = n;
    } else {
      sums = c_block.data();
      stride = most_columns;
    }
    Index inner = 0;
    do { // at least once: k = 0 writes zeros
      int const depth = static_cast<int>(Kokkos::min<Index>(tile_depth, k - inner));
      if constexpr (Tile::packs_left) pack<Tile::patch_rows>(team, a, row, rows, inner, depth, a_block.data());
      for (int s = 0; s < columns; s += strip) {
        int const width = columns - s < strip ? columns - s : strip;
        pack<Tile::patch_columns>(team, b, column + s, width, inner, depth, b_block.data());
        team.team_barrier();
        bool const replace = inner == 0 && (overwrite || !sums_in_place);
        multiply(team, row, inner, depth, a_block.data(), b_block.data(), sums + s, stride, rows, width, replace);
        team.team_barrier();
      }
      inner += depth;
    } while (inner < k);
    if constexpr (!sums_in_place) store(team, sums, c + row * n + column, rows, columns);
  }

  /// out = or += sums, rounded once.
  KOKKOS_FUNCTION void store(Team const& team, float const* sums, Output* out, int rows, int columns) const {
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, rows), [&](int i) {
      Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, columns), [&](int j) {
        float const sum = sums[i * most_columns + j];
        Output& target = out[i * n + j];
        target = from_float<Output>(overwrite ? sum : to_float(target) + sum);
      });
    });
  }

  /// packed[panel][inner][Width] = operand(outer + panel * Width + lane, inner); lanes beyond `count` are zero.
  template <int Width>
  KOKKOS_FUNCTION static void pack(Team const& team, Operand<Input> const& operand, Index outer, int count, Index inner,
                                   int depth, float* packed) {
    Input const* const source = operand.data + outer * operand.outer_stride + inner * operand.inner_stride;
    if (operand.outer_stride == 1)
      pack_panels<Width, Width, true>(team, source, operand.inner_stride, count, depth, packed);
    else
      pack_panels<Width, Width % Tile::group == 0 ? Tile::group : Width, false>(team, source, operand.outer_stride,
                                                                                count, depth, packed);
  }

  /// One of the strides is 1, which gives better vector code where the compiler knows it, as do panels that are full.
  /// Group lanes at a time: g++ loads vectors of rows that become columns and transposes them in registers, given that
  /// it sees the lanes one by one (0.2 instead of 0.4 ns per element, and of 1.3 ns where rows lie 12 kB apart).
  template <int Width, int Group, bool outer_is_contiguous>
  KOKKOS_FUNCTION static void pack_panels(Team const& team, Input const* source, Index other_stride, int count,
                                          int depth, float* packed) {
    Index const outer_stride = outer_is_contiguous ? 1 : other_stride;
    Index const inner_stride = outer_is_contiguous ? other_stride : 1;
    int const groups = static_cast<int>(divide_up(count, Width)) * (Width / Group);
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, groups), [&](int g) {
      int const first = g * Group;
      Input const* const KOKKOS_RESTRICT from = source + first * outer_stride;
      float* const KOKKOS_RESTRICT to = packed + first / Width * Width * depth + first % Width;
      int const lanes = count - first;
      if (lanes >= Group)
        Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, depth), [&](int i) {
          TRAINSTONE_UNROLL(8)
          for (int lane = 0; lane < Group; ++lane)
            to[i * Width + lane] = to_float(from[i * inner_stride + lane * outer_stride]);
        });
      else
        Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, depth), [&](int i) {
          for (int lane = 0; lane < Group; ++lane)
            to[i * Width + lane] = lane < lanes ? to_float(from[i * inner_stride + lane * outer_stride]) : 0.0F;
        });
    });
  }

  /// out = or += op(A) op(B) of one strip and block.
  KOKKOS_FUNCTION void multiply(Team const& team, Index row, Index inner, int depth, float* a_block,
                                float const* b_block, float* out, Index out_stride, int rows, int columns,
                                bool replace) const {
    constexpr int height = Tile::patch_rows, width = Tile::patch_columns;
    int const row_patches = static_cast<int>(divide_up(rows, height));
    int const column_patches = static_cast<int>(divide_up(columns, width));
    auto const multiply_one = [&](Left const& left, int i, int j) {
      multiply_patch(left, b_block + j * depth, depth, out + i * out_stride + j, out_stride,
                     Kokkos::min(height, rows - i), Kokkos::min(width, columns - j), replace);
    };
    if constexpr (Tile::packs_left)
      Kokkos::parallel_for(Kokkos::TeamVectorRange(team, row_patches * column_patches), [&](int patch) {
        int const i = patch % row_patches * height, j = patch / row_patches * width;
        multiply_one({a_block + i * depth, height}, i, j);
      });
    else
      for (int i = 0; i < rows; i += height) { // one thread is the team
        Left const left = left_panel(row + i, Kokkos::min(height, rows - i), inner, depth, a_block);
        for (int j = 0; j < columns; j += width) multiply_one(left, i, j);
      }
  }

  /// Rows of op(A) where they lie, or widened and filled up to a whole patch with zeros in `packed`.
  KOKKOS_FUNCTION Left left_panel(Index row, int count, Index inner, int depth, float* packed) const {
    Input const* const source = a.data + row * a.outer_stride + inner;
    if constexpr (std::is_same_v<Input, float>) {
      if (count == Tile::patch_rows) return {source, a.outer_stride};
    }
    for (int r = 0; r < count; ++r)
      for (int i = 0; i < depth; ++i) packed[r * depth + i] = to_float(source[r * a.outer_stride + i]);
    for (int e = count * depth; e < Tile::patch_rows * depth; ++e) packed[e] = 0.0F;
    return {packed, depth};
  }

  /// out = or += patch, of which rows by columns elements are in C.
  KOKKOS_FORCEINLINE_FUNCTION static void add_patch(float const (&patch)[Tile::patch_rows][Tile::patch_columns],
                                                    float* KOKKOS_RESTRICT out, Index out_stride, int rows, int columns,
                                                    bool replace) {
    for (int r = 0; r < rows; ++r) {
      float* const out_row = out + r * out_stride;
      for (int s = 0; s < columns; ++s) out_row[s] = replace ? patch[r][s] : out_row[s] + patch[r][s];
    }
  }

  /// The sums stay in registers through the loop over k, where the compiler vectorises the columns. Not inlined: in
  /// some surroundings g++ 16 then keeps the sums in memory (33 instead of 90 GF/s with Kokkos 5.2 OpenMP).
  [[gnu::noinline]] KOKKOS_FUNCTION static void multiply_patch(Left left, float const* KOKKOS_RESTRICT b_panel,
                                                               int depth, float* KOKKOS_RESTRICT out, Index out_stride,
                                                               int rows, int columns, bool replace) {
    constexpr int height = Tile::patch_rows, width = Tile::patch_columns;
    if constexpr (Tile::packs_left && sums_in_place) // C is large, its lines come from memory
      for (int r = 0; r < rows; ++r) prefetch_to_write(out + r * out_stride, columns);
    float sums[height][width];
    for (int r = 0; r < height; ++r)
      for (int s = 0; s < width; ++s) sums[r][s] = 0.0F;
    TRAINSTONE_UNROLL(4)
    for (int i = 0; i < depth; ++i) {
      for (int r = 0; r < height; ++r) {
        float const factor = left.at(r, i);
        for (int s = 0; s < width; ++s) sums[r][s] += factor * b_panel[i * width + s];
      }
    }
    if (rows == height && columns == width) return add_patch(sums, out, out_stride, height, width, replace);
    float edge[height][width]; // bounds that vary need an array in memory
    for (int r = 0; r < height; ++r)
      for (int s = 0; s < width; ++s) edge[r][s] = sums[r][s];
    add_patch(edge, out, out_stride, rows, columns, replace);
  }
};

template <class Input, class Output, class Tile>
void compute(ExecutionSpace const& exec, GemmShape const& shape, void const* a_data, void const* b_data, void* c_data) {
  using Body = GemmKernel<Input, Output, Tile>;
  auto const* const a = static_cast<Input const*>(a_data);
  auto const* const b = static_cast<Input const*>(b_data);
  Index const shares = divide_up(shape.n, Body::most_columns);
  Index tile_rows = Tile::rows, tile_columns = strip * divide_up(divide_up(shape.n, shares), strip); // even shares
  auto const tiles = [&] { return divide_up(shape.m, tile_rows) * divide_up(shape.n, tile_columns); };
  if constexpr (host_reaches_memory) { // smaller ones: more threads can share
    while (tiles() < 2 * exec.concurrency() && tile_rows > Tile::rows / 4) {
      if (tile_columns > 2 * strip)
        tile_columns = strip * divide_up(tile_columns, 2 * strip);
      else
        tile_rows /= 2;
    }
  }
  using Side = Operand<Input>;
  Side const left = shape.a == Transpose::no ? Side{a, shape.k, 1} : Side{a, 1, shape.m};
  Side const right = shape.b == Transpose::no ? Side{b, 1, shape.n} : Side{b, shape.k, 1};
  auto const policy =
      Kokkos::TeamPolicy<ExecutionSpace>(exec, static_cast<int>(tiles()), Tile::team_size, Tile::vector_length)
          .set_scratch_size(Tile::scratch_level, Kokkos::PerTeam(Body::scratch_bytes()));
  launch_for({"trainstone::gemm", Phase::gemm, shape.flops(), shape.bytes()}, policy,
             Body{left, right, static_cast<Output*>(c_data), shape.m, shape.n, shape.k, tile_rows, tile_columns,
                  shape.mode == Write::overwrite});
}

template <class Input, class Output>
void compute(ExecutionSpace const& exec, GemmShape const& shape, void const* a, void const* b, void* c) {
  if constexpr (!host_reaches_memory)
    compute<Input, Output, DeviceTile>(exec, shape, a, b, c);
  else if (shape.a == Transpose::no)
    compute<Input, Output, RowTile>(exec, shape, a, b, c);
  else
    compute<Input, Output, StepTile>(exec, shape, a, b, c);
}

} // namespace

void kokkos_gemm(ExecutionSpace const& exec, GemmShape const& shape, void const* a, void const* b, void* c) {
  bool const wide_output = shape.output == Storage::fp32;
  switch (shape.inputs) {
  case Storage::fp32: return compute<float, float>(exec, shape, a, b, c);
  case Storage::bf16:
    return wide_output ? compute<bf16, float>(exec, shape, a, b, c) : compute<bf16, bf16>(exec, shape, a, b, c);
  case Storage::fp16:
    return wide_output ? compute<fp16, float>(exec, shape, a, b, c) : compute<fp16, fp16>(exec, shape, a, b, c);
  }
}

} // namespace trainstone::Impl
