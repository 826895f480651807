#pragma once

// Products of small matrices of fp32 in a team's scratch, and the loops over such tiles. Owns the one mechanism:
// patches whose sums stay in registers while the terms go by, vector code over columns on the host, a patch per lane on
// a device. Promises: an element's terms are added one after the other, so that its bits depend on the number of terms
// only. Included by files of kernels' bodies only.

#include "kernels/common/row.hpp"

#include <type_traits>

namespace trainstone::Impl {

/// Patches take half of the vector registers: 8 by 32 sums with AVX-512, else 4 by 16, which is what sixteen registers
/// of 256 bits hold beside the operands. Tiles of 64 by 64 stay in the first two levels of cache.
struct HostTiles {
  static constexpr int queries = 64, keys = 64;
#ifdef __AVX512F__
  static constexpr int patch_rows = 8, patch_columns = 32;
#else
  static constexpr int patch_rows = 4, patch_columns = 16;
#endif
  static constexpr int team_size = 1, vector_length = 1;
  static constexpr std::size_t fast_scratch = 0;
};

/// 64 lanes with patches of 4 by 4. Tiles of 16 by 16 fit into shared memory (of which no device has less) up to a head
/// size of 80 in the backward pass, and of more than 128 in the forward pass; beyond that they lie in global memory.
struct DeviceTiles {
  static constexpr int queries = 16, keys = 16;
  static constexpr int patch_rows = 4, patch_columns = 4;
  static constexpr int team_size = 4, vector_length = 16;
  static constexpr std::size_t fast_scratch = 40'000;
};

using Tiles = std::conditional_t<host_reaches_memory, HostTiles, DeviceTiles>;

KOKKOS_INLINE_FUNCTION constexpr Index round_up(Index count, Index multiple) {
  return divide_up(count, multiple) * multiple;
}

/// The terms [first, end) of a sum.
struct Terms {
  Index first, end;
};

/// Element (r, k) of a left operand: at data[r stride + k], or at data[k stride + r] where it is stored transposed.
/// `unmasked`: the terms of the patch at row r that are not 0 if what is stored is 0 above its diagonal.
struct RowsOf {
  float const* data;
  Index stride;
  KOKKOS_INLINE_FUNCTION RowsOf from(Index r, Index k) const { return {data + r * stride + k, stride}; }
  KOKKOS_INLINE_FUNCTION float at(Index r, Index k) const { return data[r * stride + k]; }
  KOKKOS_INLINE_FUNCTION static Terms unmasked(Index r, Index depth) {
    return {0, minimum(r + Tiles::patch_rows, depth)};
  }
};
struct ColumnsOf {
  float const* data;
  Index stride;
  KOKKOS_INLINE_FUNCTION ColumnsOf from(Index r, Index k) const { return {data + k * stride + r, stride}; }
  KOKKOS_INLINE_FUNCTION float at(Index r, Index k) const { return data[k * stride + r]; }
  KOKKOS_INLINE_FUNCTION static Terms unmasked(Index r, Index depth) { return {minimum(r, depth), depth}; }
};

/// What multiply may leave out where queries meet their own keys: nothing, the patches of sums that are all above the
/// diagonal, or the terms whose left factors are 0 because what is stored of them is above it.
enum class Skip { nothing, sums_above, terms_above };

/// A matrix in scratch whose rows are contiguous.
struct Tile {
  float* data;
  Index stride;
  KOKKOS_INLINE_FUNCTION float& operator()(Index row, Index column) const { return data[row * stride + column]; }
  KOKKOS_INLINE_FUNCTION Tile from(Index row, Index column) const { return {data + row * stride + column, stride}; }
};

/// One patch of multiply. Not inlined: the compiler then keeps the sums in registers.
template <Write mode, class Left>
[[gnu::noinline]] KOKKOS_FUNCTION void multiply_patch(Left left, float const* KOKKOS_RESTRICT right, Index right_stride,
                                                      Index depth, float* KOKKOS_RESTRICT sums, Index sums_stride) {
  constexpr int height = Tiles::patch_rows, width = Tiles::patch_columns;
  float patch[height][width];
  for (int r = 0; r < height; ++r)
    for (int c = 0; c < width; ++c) patch[r][c] = mode == Write::add ? sums[r * sums_stride + c] : 0.0F;
  TRAINSTONE_UNROLL(4)
  for (Index k = 0; k < depth; ++k) {
    for (int r = 0; r < height; ++r) {
      float const factor = left.at(r, k);
      for (int c = 0; c < width; ++c) patch[r][c] += factor * right[k * right_stride + c];
    }
  }
  for (int r = 0; r < height; ++r)
    for (int c = 0; c < width; ++c) sums[r * sums_stride + c] = patch[r][c];
}

/// sums = or += left right, of rows by columns elements with `depth` terms each. Rows and columns are rounded up to
/// whole patches: all three must reach as far.
template <class Left>
KOKKOS_INLINE_FUNCTION void multiply(Team const& team, Index rows, Index columns, Index depth, Left left, Tile right,
                                     Tile sums, Write mode, Skip skip = Skip::nothing) {
  int const row_patches = static_cast<int>(divide_up(rows, Tiles::patch_rows));
  int const patches = row_patches * static_cast<int>(divide_up(columns, Tiles::patch_columns));
  Kokkos::parallel_for(Kokkos::TeamVectorRange(team, patches), [&](int patch) {
    int const row = patch % row_patches * Tiles::patch_rows, column = patch / row_patches * Tiles::patch_columns;
    if (skip == Skip::sums_above && column >= row + Tiles::patch_rows) return;
    Terms const terms = skip == Skip::terms_above ? Left::unmasked(row, depth) : Terms{0, depth};
    Left const factors = left.from(row, terms.first);
    float const* const others = &right(terms.first, column);
    Index const count = terms.end - terms.first;
    if (mode == Write::add)
      multiply_patch<Write::add>(factors, others, right.stride, count, &sums(row, column), sums.stride);
    else
      multiply_patch<Write::overwrite>(factors, others, right.stride, count, &sums(row, column), sums.stride);
  });
}

/// body(row, column) for every element, in any order.
template <class Body>
KOKKOS_INLINE_FUNCTION void tile_for(Team const& team, Index rows, Index columns, Body const& body) {
  int const height = static_cast<int>(rows), width = static_cast<int>(columns);
  KOKKOS_IF_ON_HOST((static_cast<void>(team);
                     for (int row = 0; row < height; ++row) vector_for(width, [&](int column) { body(row, column); });))
  KOKKOS_IF_ON_DEVICE((Kokkos::parallel_for(Kokkos::TeamThreadRange(team, height), [&](int row) {
                         Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, width),
                                              [&](int column) { body(row, column); });
                       });))
}

/// store(column, value) with value = combine(value, row, column) over the rows in order, from `initial` on; at most
/// Tiles::queries columns.
template <class Combine, class Store>
KOKKOS_INLINE_FUNCTION void fold_columns(Team const& team, Index rows, Index columns, float initial,
                                         Combine const& combine, Store const& store) {
  int const height = static_cast<int>(rows), width = static_cast<int>(columns);
  KOKKOS_IF_ON_HOST((static_cast<void>(team); float values[HostTiles::queries];
                     vector_for(width, [&](int c) { values[c] = initial; }); for (int row = 0; row < height; ++row)
                         vector_for(width, [&](int c) { values[c] = combine(values[c], row, c); });
                     vector_for(width, [&](int c) { store(c, values[c]); });))
  KOKKOS_IF_ON_DEVICE((Kokkos::parallel_for(Kokkos::TeamVectorRange(team, width), [&](int c) {
                         float value = initial;
                         for (int row = 0; row < height; ++row) value = combine(value, row, c);
                         store(c, value);
                       });))
}

/// tile (rows, columns) = the first `count` rows of `size` elements, in fp32, times `scale`; zero elsewhere.
template <class T>
KOKKOS_INLINE_FUNCTION void load_rows(Team const& team, T const* source, Index source_stride, Index count, Index size,
                                      float scale, Tile tile, Index rows, Index columns) {
  tile_for(team, count, size, [&](int r, int c) { tile(r, c) = scale * to_float(source[r * source_stride + c]); });
  if (size < columns) tile_for(team, count, columns - size, [&](int r, int c) { tile(r, size + c) = 0.0F; });
  if (count < rows) tile_for(team, rows - count, columns, [&](int r, int c) { tile(count + r, c) = 0.0F; });
}

/// The same transposed: tile (size, columns), column c being row c of the source. The host reads along rows: to gather
/// for a vector takes longer than to scatter its elements.
template <class T>
KOKKOS_INLINE_FUNCTION void load_columns(Team const& team, T const* source, Index source_stride, Index count,
                                         Index size, float scale, Tile tile, Index columns) {
  auto const load = [&](int r, int c) { tile(r, c) = scale * to_float(source[c * source_stride + r]); };
  KOKKOS_IF_ON_HOST((tile_for(team, count, size, [&](int c, int r) { load(r, c); });))
  KOKKOS_IF_ON_DEVICE((tile_for(team, size, count, load);))
  if (count < columns) tile_for(team, size, columns - count, [&](int r, int c) { tile(r, count + c) = 0.0F; });
}

} // namespace trainstone::Impl
