// The plain Kokkos matrix product: runs everywhere, needs no library, is no race car. A team computes one tile of C;
// it walks through k in blocks, packs the blocks of op(A) and op(B) into its scratch (which undoes transposes and pads
// with zeros), and each thread or vector lane multiplies small patches of C in registers.
// One row of sums per element of C and block, blocks added in order: the same bits on every run and any team size.
// Operands become fp32 as they are packed. A C of 16 bits is added up in fp32 in the scratch and rounded once.

#include "kernels/gemm_impl.hpp"

#include "core/launch.hpp"
#include "core/types.hpp"
#include "kernels/row.hpp"

#include <algorithm>
#include <type_traits>

namespace trainstone::Impl {

namespace {

/// The sums of a patch fill the vector registers but for the operands: 6 by 32 with AVX-512 (halves of 256 bits, too),
/// 6 by 16 without. Tiles fit L2, the packed columns of one patch L1. Rows are as many as 256 tokens want: B is packed
/// once for them. Wants 200 kB of scratch, 240 kB where C has 16 bits.
struct HostTile {
  static constexpr int rows = 264, columns = 128, depth = 128;
#ifdef __AVX512F__
  static constexpr int patch_rows = 6, patch_columns = 32;
#else
  static constexpr int patch_rows = 6, patch_columns = 16;
#endif
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

using Tile = std::conditional_t<host_reaches_memory, HostTile, DeviceTile>;

/// op(A) or op(B) as seen from C: `outer` is the index that C shares (row of A, column of B), `inner` is k.
template <class T>
struct Operand {
  T const* data;
  Index outer_stride, inner_stride; // one of them is 1
};

/// Element (r, i) of a patch of packed rows of op(A): step by step as the sums take them, or row by row. The host packs
/// them as they lie in memory, whole vectors at a time: it broadcasts single elements later, and either order serves.
struct ByStep {
  KOKKOS_INLINE_FUNCTION static float at(float const* panel, int, int r, int i) {
    return panel[i * Tile::patch_rows + r];
  }
};
struct ByRow {
  KOKKOS_INLINE_FUNCTION static float at(float const* panel, int depth, int r, int i) { return panel[r * depth + i]; }
};

template <class Input, class Output, class Left>
struct GemmKernel {
  using Team = Kokkos::TeamPolicy<ExecutionSpace>::member_type;
  using Scratch = Kokkos::View<float*, ExecutionSpace::scratch_memory_space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;

  static constexpr bool sums_in_place = std::is_same_v<Output, float>;
  /// Blocks of half the depth make room for the sums.
  static constexpr int tile_depth = sums_in_place ? Tile::depth : Tile::depth / 2;
  static constexpr int a_size = Tile::rows * tile_depth;
  static constexpr int b_size = Tile::columns * tile_depth;
  static constexpr int c_size = sums_in_place ? 0 : Tile::rows * Tile::columns;
  static_assert(Tile::rows % (2 * Tile::patch_rows) == 0 && Tile::columns % Tile::patch_columns == 0);

  Operand<Input> a, b;
  Output* c;
  Index m, n, k;
  Index tile_rows, column_tiles;
  bool overwrite;

  static std::size_t scratch_bytes() {
    return Scratch::shmem_size(a_size) + Scratch::shmem_size(b_size) + Scratch::shmem_size(c_size);
  }

  KOKKOS_FUNCTION void operator()(Team const& team) const {
    Index const row = team.league_rank() / column_tiles * tile_rows;
    Index const column = team.league_rank() % column_tiles * Tile::columns;
    int const rows = static_cast<int>(Kokkos::min<Index>(tile_rows, m - row));
    int const columns = static_cast<int>(Kokkos::min<Index>(Tile::columns, n - column));
    constexpr int level = Tile::scratch_level; // taken by reference, which device code cannot do with a member
    Scratch const a_block(team.team_scratch(level), a_size);
    Scratch const b_block(team.team_scratch(level), b_size);
    Scratch const c_block(team.team_scratch(level), c_size);
    Index inner = 0;
    do { // at least once: k = 0 writes zeros
      int const depth = static_cast<int>(Kokkos::min<Index>(tile_depth, k - inner));
      if constexpr (std::is_same_v<Left, ByRow>)
        pack_rows(a, row, rows, inner, depth, a_block.data());
      else
        pack<Tile::patch_rows>(team, a, row, rows, inner, depth, a_block.data());
      pack<Tile::patch_columns>(team, b, column, columns, inner, depth, b_block.data());
      team.team_barrier();
      if constexpr (sums_in_place)
        multiply(team, a_block.data(), b_block.data(), depth, c + row * n + column, n, rows, columns,
                 overwrite && inner == 0);
      else
        multiply(team, a_block.data(), b_block.data(), depth, c_block.data(), Tile::columns, rows, columns, inner == 0);
      team.team_barrier();
      inner += depth;
    } while (inner < k);
    if constexpr (!sums_in_place) store(team, c_block.data(), c + row * n + column, rows, columns);
  }

  /// out = or += sums, rounded once.
  KOKKOS_FUNCTION void store(Team const& team, float const* sums, Output* out, int rows, int columns) const {
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, rows), [&](int i) {
      Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, columns), [&](int j) {
        float const sum = sums[i * Tile::columns + j];
        Output& target = out[i * n + j];
        target = from_float<Output>(overwrite ? sum : to_float(target) + sum);
      });
    });
  }

  /// packed[outer][inner] = operand(outer, inner), whose rows are contiguous; zero up to whole patches. By one thread,
  /// which is the host's team.
  KOKKOS_FUNCTION static void pack_rows(Operand<Input> const& operand, Index outer, int count, Index inner, int depth,
                                        float* packed) {
    for (int o = 0; o < count; ++o) {
      Input const* const row = operand.data + (outer + o) * operand.outer_stride + inner;
      for (int i = 0; i < depth; ++i) packed[o * depth + i] = to_float(row[i]);
    }
    int const end = static_cast<int>(divide_up(count, Tile::patch_rows)) * Tile::patch_rows;
    for (int e = count * depth; e < end * depth; ++e) packed[e] = 0.0F;
  }

  /// packed[panel][inner][Width] = operand(outer + panel * Width + lane, inner); lanes beyond `count` are zero.
  template <int Width>
  KOKKOS_FUNCTION static void pack(Team const& team, Operand<Input> const& operand, Index outer, int count, Index inner,
                                   int depth, float* packed) {
    Input const* const source = operand.data + outer * operand.outer_stride + inner * operand.inner_stride;
    if (operand.outer_stride == 1)
      pack_panels<Width, true>(team, source, operand.inner_stride, count, depth, packed);
    else
      pack_panels<Width, false>(team, source, operand.outer_stride, count, depth, packed);
  }

  /// One of the strides is 1, which gives better vector code where the compiler knows it, as do panels that are full.
  template <int Width, bool outer_is_contiguous>
  KOKKOS_FUNCTION static void pack_panels(Team const& team, Input const* source, Index other_stride, int count,
                                          int depth, float* packed) {
    Index const outer_stride = outer_is_contiguous ? 1 : other_stride;
    Index const inner_stride = outer_is_contiguous ? other_stride : 1;
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, static_cast<int>(divide_up(count, Width))), [&](int p) {
      Input const* const panel = source + p * Width * outer_stride;
      int const lanes = count - p * Width;
      Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, depth), [&](int i) {
        Input const* const from = panel + i * inner_stride;
        float* const to = packed + (p * depth + i) * Width;
        if (lanes >= Width)
          for (int lane = 0; lane < Width; ++lane) to[lane] = to_float(from[lane * outer_stride]);
        else
          for (int lane = 0; lane < Width; ++lane) to[lane] = lane < lanes ? to_float(from[lane * outer_stride]) : 0.0F;
      });
    });
  }

  KOKKOS_FUNCTION static void multiply(Team const& team, float const* a_block, float const* b_block, int depth,
                                       float* out, Index out_stride, int rows, int columns, bool replace) {
    constexpr int height = Tile::patch_rows, width = Tile::patch_columns;
    int const row_patches = static_cast<int>(divide_up(rows, height));
    int const column_patches = static_cast<int>(divide_up(columns, width));
    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, row_patches * column_patches), [&](int patch) {
      int const i = patch % row_patches * height, j = patch / row_patches * width;
      multiply_patch(a_block + i * depth, b_block + j * depth, depth, out + i * out_stride + j, out_stride,
                     Kokkos::min(height, rows - i), Kokkos::min(width, columns - j), replace);
    });
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
  [[gnu::noinline]] KOKKOS_FUNCTION static void multiply_patch(float const* KOKKOS_RESTRICT a_panel,
                                                               float const* KOKKOS_RESTRICT b_panel, int depth,
                                                               float* KOKKOS_RESTRICT out, Index out_stride, int rows,
                                                               int columns, bool replace) {
    constexpr int height = Tile::patch_rows, width = Tile::patch_columns;
    float sums[height][width];
    for (int r = 0; r < height; ++r)
      for (int s = 0; s < width; ++s) sums[r][s] = 0.0F;
    TRAINSTONE_UNROLL
    for (int i = 0; i < depth; ++i) {
      for (int r = 0; r < height; ++r) {
        float const factor = Left::at(a_panel, depth, r, i);
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

template <class Input, class Output, class Left>
void compute(ExecutionSpace const& exec, GemmShape const& shape, void const* a_data, void const* b_data, void* c_data) {
  using Body = GemmKernel<Input, Output, Left>;
  auto const* const a = static_cast<Input const*>(a_data);
  auto const* const b = static_cast<Input const*>(b_data);
  Index const column_tiles = divide_up(shape.n, Tile::columns);
  Index const large_tiles = divide_up(shape.m, Tile::rows) * column_tiles;
  bool const too_few = host_reaches_memory && large_tiles < 2 * exec.concurrency(); // half the rows: more can share
  Index const tile_rows = too_few ? Tile::rows / 2 : Tile::rows;
  Index const tiles = divide_up(shape.m, tile_rows) * column_tiles;
  using Side = Operand<Input>;
  Side const left = shape.a == Transpose::no ? Side{a, shape.k, 1} : Side{a, 1, shape.m};
  Side const right = shape.b == Transpose::no ? Side{b, 1, shape.n} : Side{b, shape.k, 1};
  auto const policy =
      Kokkos::TeamPolicy<ExecutionSpace>(exec, static_cast<int>(tiles), Tile::team_size, Tile::vector_length)
          .set_scratch_size(Tile::scratch_level, Kokkos::PerTeam(Body::scratch_bytes()));
  launch_for({"trainstone::gemm", Phase::gemm, shape.flops(), shape.bytes()}, policy,
             Body{left, right, static_cast<Output*>(c_data), shape.m, shape.n, shape.k, tile_rows, column_tiles,
                  shape.mode == Write::overwrite});
}

template <class Input, class Output>
void compute(ExecutionSpace const& exec, GemmShape const& shape, void const* a, void const* b, void* c) {
  if constexpr (host_reaches_memory) {
    if (shape.a == Transpose::no) return compute<Input, Output, ByRow>(exec, shape, a, b, c);
  }
  compute<Input, Output, ByStep>(exec, shape, a, b, c);
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
