#pragma once

// Products of small matrices of fp32 in a team's scratch, and the loops over such tiles. Owns the one mechanism:
// patches whose sums stay in registers while the terms go by, vector code over columns on the host, a patch per lane on
// a device. Promises: an element's terms are added one after the other, so that its bits depend on the number of terms
// only. Included by k_impl.hpp files only.

#include "kernels/row.hpp"

#include <type_traits>

namespace trainstone::Impl {

/// A patch of 8 by 32 takes half of AVX-512's registers; tiles of 64 by 64 stay in the first two levels of cache.
struct HostTiles {
  static constexpr int queries = 64, keys = 64;
  static constexpr int patch_rows = 8, patch_columns = 32;
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

/// Element (r, k) of a left operand: at data[r stride + k], or at data[k stride + r] where it is stored transposed.
struct RowsOf {
  float const* data;
  Index stride;
  KOKKOS_INLINE_FUNCTION RowsOf from_row(Index r) const { return {data + r * stride, stride}; }
  KOKKOS_INLINE_FUNCTION float at(Index r, Index k) const { return data[r * stride + k]; }
};
struct ColumnsOf {
  float const* data;
  Index stride;
  KOKKOS_INLINE_FUNCTION ColumnsOf from_row(Index r) const { return {data + r, stride}; }
  KOKKOS_INLINE_FUNCTION float at(Index r, Index k) const { return data[k * stride + r]; }
};

/// A matrix in scratch whose rows are contiguous.
struct Tile {
  float* data;
  Index stride;
  KOKKOS_INLINE_FUNCTION float& operator()(Index row, Index column) const { return data[row * stride + column]; }
  KOKKOS_INLINE_FUNCTION Tile from(Index row, Index column) const { return {data + row * stride + column, stride}; }
};

/// One patch of multiply. Not inlined: the compiler then keeps the sums in registers.
template <class Left>
[[gnu::noinline]] KOKKOS_FUNCTION void multiply_patch(Left left, float const* KOKKOS_RESTRICT right, Index right_stride,
                                                      Index depth, float* KOKKOS_RESTRICT sums, Index sums_stride,
                                                      Write mode) {
  constexpr int height = Tiles::patch_rows, width = Tiles::patch_columns;
  float patch[height][width] = {};
  if (mode == Write::add)
    for (int r = 0; r < height; ++r)
      for (int c = 0; c < width; ++c) patch[r][c] = sums[r * sums_stride + c];
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
                                     Tile sums, Write mode) {
  int const row_patches = static_cast<int>(divide_up(rows, Tiles::patch_rows));
  int const patches = row_patches * static_cast<int>(divide_up(columns, Tiles::patch_columns));
  Kokkos::parallel_for(Kokkos::TeamVectorRange(team, patches), [&](int patch) {
    int const row = patch % row_patches * Tiles::patch_rows, column = patch / row_patches * Tiles::patch_columns;
    multiply_patch(left.from_row(row), right.data + column, right.stride, depth, &sums(row, column), sums.stride, mode);
  });
}

/// body(row, column) for every element, in any order.
template <class Body>
KOKKOS_INLINE_FUNCTION void tile_for(Team const& team, Index rows, Index columns, Body const& body) {
  KOKKOS_IF_ON_HOST((static_cast<void>(team); for (int row = 0; row < rows; ++row)
                         vector_for(columns, [&](Index column) { body(row, static_cast<int>(column)); });))
  KOKKOS_IF_ON_DEVICE((Kokkos::parallel_for(Kokkos::TeamThreadRange(team, static_cast<int>(rows)), [&](int row) {
                         Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, static_cast<int>(columns)),
                                              [&](int column) { body(row, column); });
                       });))
}

/// store(column, value) with value = combine(value, row, column) over the rows in order, from `initial` on; at most
/// Tiles::queries columns.
template <class Combine, class Store>
KOKKOS_INLINE_FUNCTION void fold_columns(Team const& team, Index rows, Index columns, float initial,
                                         Combine const& combine, Store const& store) {
  KOKKOS_IF_ON_HOST(
      (static_cast<void>(team); float values[HostTiles::queries];
       vector_for(columns, [&](Index c) { values[c] = initial; }); for (Index row = 0; row < rows; ++row) vector_for(
           columns, [&](Index c) { values[c] = combine(values[c], static_cast<int>(row), static_cast<int>(c)); });
       vector_for(columns, [&](Index c) { store(static_cast<int>(c), values[c]); });))
  KOKKOS_IF_ON_DEVICE((Kokkos::parallel_for(Kokkos::TeamVectorRange(team, columns), [&](Index c) {
                         float value = initial;
                         for (Index row = 0; row < rows; ++row)
                           value = combine(value, static_cast<int>(row), static_cast<int>(c));
                         store(static_cast<int>(c), value);
                       });))
}

/// tile (rows, columns) = the first `count` rows of `size` elements, in fp32, times `scale`; zero elsewhere.
template <class T>
KOKKOS_INLINE_FUNCTION void load_rows(Team const& team, T const* source, Index source_stride, Index count, Index size,
                                      float scale, Tile tile, Index rows, Index columns) {
  tile_for(team, rows, columns, [&](int r, int c) {
    tile(r, c) = r < count && c < size ? scale * to_float(source[r * source_stride + c]) : 0.0F;
  });
}

/// The same transposed: tile (size, columns), column c being row c of the source.
template <class T>
KOKKOS_INLINE_FUNCTION void load_columns(Team const& team, T const* source, Index source_stride, Index count,
                                         Index size, float scale, Tile tile, Index columns) {
  tile_for(team, size, columns,
           [&](int r, int c) { tile(r, c) = c < count ? scale * to_float(source[c * source_stride + r]) : 0.0F; });
}

} // namespace trainstone::Impl
