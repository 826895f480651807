#pragma once

// Tiles of 16-bit elements in shared memory as products of a warpgroup read them, and these products. A tile is panels
// of 64 columns, the last one of fewer; a row of a panel is 128 bytes, whose chunks are swizzled (Factor). The
// functions have the names and the meaning of those in tile_fragments.hpp, but what they multiply is complete only
// behind await_products(). Included by the kernels of this folder only.

#include "kernels/cuda/tile_fragments.hpp"
#include "kernels/cuda/warpgroup_lane.hpp"

namespace trainstone::Cuda {

/// (rows, width) elements.
template <int rows, int width>
struct SwizzledTile {
  static_assert(width % 16 == 0 && rows % 8 == 0);
  static constexpr int row_bytes = 128, panel_columns = 64;
  static constexpr int chunks = width / 8; ///< of 16 bytes, in a row of all panels
  static constexpr int panels = (width + panel_columns - 1) / panel_columns;
  static constexpr int panel_bytes = rows * row_bytes, eight_rows = 8 * row_bytes;
  static constexpr int bytes = panels * panel_bytes;

  std::byte* data;

  /// Of a chunk in a panel, in bytes.
  static TRAINSTONE_LANE int place(int row, int chunk) { return row * row_bytes + (chunk ^ row % 8) * 16; }
  TRAINSTONE_LANE std::byte* at(int row, int column) const {
    return data + column / panel_columns * panel_bytes + place(row, column % panel_columns / 8) + column % 8 * 2;
  }
  /// The 16 columns from 16 step on, of the rows from `row` on, which is a multiple of 8.
  template <class Lane>
  TRAINSTONE_LANE Factor columns(Lane& lane, int row, int step) const {
    constexpr int steps = panel_columns / 16;
    return lane.factor(data + step / steps * panel_bytes + row * row_bytes + step % steps * 32, 16, eight_rows);
  }
  /// All columns of the 16 rows from `row` on, which is a multiple of 8: the rows are what is summed over.
  template <class Lane>
  TRAINSTONE_LANE Factor rows_from(Lane& lane, int row) const {
    return lane.factor(data + row * row_bytes, panel_bytes, eight_rows);
  }
};

/// `count` panels of `side` chunks from panel `first_panel` on.
template <int threads, int side, int first_panel, int count, int rows, int width, class Lane>
TRAINSTONE_LANE void bring_panels(Lane& lane, SwizzledTile<rows, width> tile, GlobalRows const& from) {
  using Tile = SwizzledTile<rows, width>;
  constexpr int step = threads / side;
  static_assert(threads % side == 0 && step % 8 == 0 && (rows % step == 0 || step > rows));
  int const first = lane.thread() / side, chunk = lane.thread() % side;
  if (step > rows && first >= rows) return;
  std::byte* const to = tile.data + first_panel * Tile::panel_bytes + Tile::place(first, chunk);
  std::byte const* of_row =
      from.data + std::int64_t{first} * from.row_bytes + Tile::row_bytes * first_panel + 16 * chunk;
  TRAINSTONE_UNROLLED
  for (int i = 0; i < (rows + step - 1) / step; ++i) {
    TRAINSTONE_UNROLLED
    for (int k = 0; k < count; ++k)
      lane.copy(to + k * Tile::panel_bytes + i * step * Tile::row_bytes, of_row + Tile::row_bytes * k,
                first + i * step < from.count);
    of_row += step * from.row_bytes;
  }
}

template <int threads, int rows, int width, class Lane>
TRAINSTONE_LANE void bring(Lane& lane, SwizzledTile<rows, width> tile, GlobalRows const& from) {
  constexpr int columns = SwizzledTile<rows, width>::panel_columns, full = width / columns, rest = width % columns / 8;
  bring_panels<threads, columns / 8, 0, full>(lane, tile, from);
  if constexpr (rest > 0) bring_panels<threads, rest, full, 1>(lane, tile, from);
}

/// The rows are those of the warpgroup that `row` belongs to.
template <class T, int fragments, int rows, int others, int width, class Lane>
TRAINSTONE_LANE void set_row_products(Lane& lane, SwizzledTile<rows, width> left, int row,
                                      SwizzledTile<others, width> right, int other, FragmentC (&sums)[1][fragments]) {
  int const first = row / rows_of_warpgroup * rows_of_warpgroup;
  lane.begin_products();
  TRAINSTONE_UNROLLED
  for (int step = 0; step < width / 16; ++step)
    lane.template multiply_rows<T>(sums[0], left.columns(lane, first, step), right.columns(lane, other, step),
                                   step > 0);
  lane.end_products();
}

template <class T, int fragments, int rows, int width, class Lane>
TRAINSTONE_LANE void add_weighted_rows(Lane& lane, FragmentC const (&weights)[1][fragments],
                                       SwizzledTile<rows, width> tile, int row, FragmentC (&sums)[1][width / 8]) {
  FragmentA a[fragments / 2];
  TRAINSTONE_UNROLLED
  for (int pair = 0; pair < fragments / 2; ++pair)
    a[pair] = rounded<T>(lane, weights[0][2 * pair], weights[0][2 * pair + 1]);
  lane.begin_products();
  TRAINSTONE_UNROLLED
  for (int pair = 0; pair < fragments / 2; ++pair)
    lane.template multiply_fragments<T>(sums[0], a[pair], tile.rows_from(lane, row + 16 * pair));
  lane.end_products();
}

} // namespace trainstone::Cuda
