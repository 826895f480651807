#pragma once

// Tiles of 16-bit elements in shared memory, and products of fragments of them. A row of a tile has 16 bytes more than
// its elements take: the rows of an 8 x 8 matrix then begin in different banks, for all widths that are odd or even
// multiples of 16 bytes. Included by the kernels of this folder only.

#include "kernels/cuda/lane.hpp"

#include <cstddef>

namespace trainstone::Cuda {

/// What is moved at a time.
struct alignas(16) Chunk {
  std::uint32_t words[4];
};

/// (rows, width) elements.
template <int width>
struct SharedTile {
  static_assert(width % 16 == 0);
  static constexpr int chunks = width / 8;         ///< of 16 bytes, in a row
  static constexpr int row_bytes = 2 * width + 16; ///< an odd number of chunks
  static constexpr int bytes_of(int rows) { return rows * row_bytes; }

  std::byte* data;

  TRAINSTONE_LANE std::byte* at(int row, int column) const { return data + row * row_bytes + 2 * column; }
};

/// Rows of a matrix in global memory.
struct GlobalRows {
  std::byte const* data;
  int row_bytes;
  int count; ///< rows beyond are zeros

  TRAINSTONE_LANE GlobalRows from(int row) const {
    return {data + std::int64_t{row} * row_bytes, row_bytes, count - row};
  }
};

/// The lanes of a block bring `rows` rows of a tile together. A lane has the same place in all of its rows, so that
/// there is one address to keep. Of rows that are not there nothing is read.
template <int threads, int rows, int width, class Lane>
TRAINSTONE_LANE void bring(Lane& lane, SharedTile<width> tile, GlobalRows const& from) {
  constexpr int chunks = SharedTile<width>::chunks, side = chunks & -chunks; // lanes beside each other on a row
  constexpr int step = threads / side;
  static_assert(threads % side == 0 && rows % step == 0);
  int const first = lane.thread() / side, column = lane.thread() % side;
  std::byte* const to = tile.at(first, 8 * column);
  std::byte const* of_row = from.data + std::int64_t{first} * from.row_bytes + 16 * column;
  TRAINSTONE_UNROLLED
  for (int i = 0; i < rows / step; ++i) {
    TRAINSTONE_UNROLLED
    for (int k = 0; k < chunks / side; ++k)
      lane.copy(to + i * step * SharedTile<width>::row_bytes + 16 * side * k, of_row + 16 * side * k,
                first + i * step < from.count);
    of_row += step * from.row_bytes;
  }
}

/// The lanes of a warp write rows of a tile, from `first` on, to rows of global memory that have the same numbers;
/// those from `count` on are not there.
template <int rows, class Tile, class Lane>
TRAINSTONE_LANE void write_rows(Lane& lane, Tile tile, int first, std::byte* to, int row_bytes, int count) {
  constexpr int chunks = Tile::chunks;
  static_assert(rows * chunks % 32 == 0);
  TRAINSTONE_UNROLLED
  for (int i = 0; i < rows * chunks / 32; ++i) {
    int const number = 32 * i + lane.thread() % 32, row = first + number / chunks, chunk = number % chunks;
    if (row < count)
      *reinterpret_cast<Chunk*>(to + std::int64_t{row} * row_bytes + 16 * chunk) =
          *reinterpret_cast<Chunk const*>(tile.at(row, 8 * chunk));
  }
}

/// A of the 16 rows from `row` and the 16 columns from `column`.
template <class Lane, int width>
TRAINSTONE_LANE FragmentA load_a(Lane& lane, SharedTile<width> tile, int row, int column) {
  FragmentA a;
  int const place = lane.thread() % 32;
  lane.template load<Turn::none>(a.r, tile.at(row + place % 16, column + place / 16 * 8));
  return a;
}

/// Two B side by side that are the transposed tile: its 16 rows from `row` are the columns of both, its 16 columns from
/// `column` are their rows.
template <class Lane, int width>
TRAINSTONE_LANE FragmentB load_b_transposed(Lane& lane, SharedTile<width> tile, int row, int column) {
  FragmentB b;
  int const place = lane.thread() % 32;
  lane.template load<Turn::none>(b.r, tile.at(row + place % 8 + place / 16 * 8, column + place / 8 % 2 * 8));
  return b;
}

/// Two B side by side: the 16 rows from `row` of the tile and its 16 columns from `column`.
template <class Lane, int width>
TRAINSTONE_LANE FragmentB load_b(Lane& lane, SharedTile<width> tile, int row, int column) {
  FragmentB b;
  int const place = lane.thread() % 32;
  lane.template load<Turn::transposed>(b.r, tile.at(row + place % 16, column + place / 16 * 8));
  return b;
}

/// Two neighbouring sums: c += a b.
template <class T, class Lane>
TRAINSTONE_LANE void multiply(Lane& lane, FragmentC& left, FragmentC& right, FragmentA const& a, FragmentB const& b) {
  lane.template multiply<T>(left, a, b.r[0], b.r[1]);
  lane.template multiply<T>(right, a, b.r[2], b.r[3]);
}

/// Two neighbouring sums, rounded, as A of the next product.
template <class T, class Lane>
TRAINSTONE_LANE FragmentA rounded(Lane& lane, FragmentC const& left, FragmentC const& right) {
  return {{lane.template pack<T>(left.c[0], left.c[1]), lane.template pack<T>(left.c[2], left.c[3]),
           lane.template pack<T>(right.c[0], right.c[1]), lane.template pack<T>(right.c[2], right.c[3])}};
}

/// sums += 16 columns of rows times those of the transposed rows of a tile from `other` on.
template <class T, int parts, int columns, int width, class Lane>
TRAINSTONE_LANE void add_step(Lane& lane, FragmentA const (&a)[parts], SharedTile<width> right, int other, int step,
                              FragmentC (&sums)[parts][columns]) {
  TRAINSTONE_UNROLLED
  for (int pair = 0; pair < columns / 2; ++pair) {
    FragmentB const b = load_b_transposed(lane, right, other + 16 * pair, 16 * step);
    TRAINSTONE_UNROLLED
    for (int part = 0; part < parts; ++part)
      multiply<T>(lane, sums[part][2 * pair], sums[part][2 * pair + 1], a[part], b);
  }
}

/// sums += rows of a tile from `row` on times the transposed rows of another one from `other` on, over all columns.
template <class T, int parts, int columns, int width, class Lane>
TRAINSTONE_LANE void add_row_products(Lane& lane, SharedTile<width> left, int row, SharedTile<width> right, int other,
                                      FragmentC (&sums)[parts][columns]) {
  TRAINSTONE_UNROLLED
  for (int step = 0; step < width / 16; ++step) {
    FragmentA a[parts];
    TRAINSTONE_UNROLLED
    for (int part = 0; part < parts; ++part) a[part] = load_a(lane, left, row + 16 * part, 16 * step);
    add_step<T>(lane, a, right, other, step, sums);
  }
}

/// sums = 0
template <int parts, int columns>
TRAINSTONE_LANE void clear(FragmentC (&sums)[parts][columns]) {
  TRAINSTONE_UNROLLED
  for (int part = 0; part < parts; ++part) {
    TRAINSTONE_UNROLLED
    for (int i = 0; i < columns; ++i) sums[part][i] = {};
  }
}

/// sums = what add_row_products() adds.
template <class T, int parts, int columns, int width, class Lane>
TRAINSTONE_LANE void set_row_products(Lane& lane, SharedTile<width> left, int row, SharedTile<width> right, int other,
                                      FragmentC (&sums)[parts][columns]) {
  clear(sums);
  add_row_products<T>(lane, left, row, right, other, sums);
}

/// Scores become so small that their weights are zero where the key is behind the query.
/// \tparam    by_key       columns are queries and rows are keys, not the other way round
/// \param[in] column, row  of this lane in its first fragment, as numbers of queries and keys
template <bool by_key, int parts, int columns>
TRAINSTONE_LANE void hide(FragmentC (&scores)[parts][columns], int column, int row) {
  TRAINSTONE_UNROLLED
  for (int part = 0; part < parts; ++part) {
    TRAINSTONE_UNROLLED
    for (int i = 0; i < columns; ++i) {
      TRAINSTONE_UNROLLED
      for (int j = 0; j < 4; ++j) {
        int const away = (column + 8 * i + j % 2) - (row + 16 * part + j / 2 * 8);
        if (by_key ? away < 0 : away > 0) scores[part][i].c[j] = -__builtin_huge_valf();
      }
    }
  }
}

/// sums += weights, rounded, times the rows of a tile from `row` on.
template <class T, int parts, int columns, int width, class Lane>
TRAINSTONE_LANE void add_weighted_rows(Lane& lane, FragmentC const (&weights)[parts][columns], SharedTile<width> tile,
                                       int row, FragmentC (&sums)[parts][width / 8]) {
  TRAINSTONE_UNROLLED
  for (int pair = 0; pair < columns / 2; ++pair) {
    FragmentA a[parts];
    TRAINSTONE_UNROLLED
    for (int part = 0; part < parts; ++part)
      a[part] = rounded<T>(lane, weights[part][2 * pair], weights[part][2 * pair + 1]);
    TRAINSTONE_UNROLLED
    for (int step = 0; step < width / 16; ++step) {
      FragmentB const b = load_b(lane, tile, row + 16 * pair, 16 * step);
      TRAINSTONE_UNROLLED
      for (int part = 0; part < parts; ++part)
        multiply<T>(lane, sums[part][2 * step], sums[part][2 * step + 1], a[part], b);
    }
  }
}

/// The warp's sums, times a factor and rounded, become rows of a tile from `row` on.
template <class T, int parts, int columns, class Tile, class Lane>
TRAINSTONE_LANE void put_rows(Lane& lane, FragmentC const (&sums)[parts][columns], float factor, Tile tile, int row) {
  static_assert(columns == Tile::chunks);
  int const group = lane.thread() % 32 / 4, column = lane.thread() % 4 * 2;
  TRAINSTONE_UNROLLED
  for (int part = 0; part < parts; ++part) {
    TRAINSTONE_UNROLLED
    for (int half = 0; half < 2; ++half) {
      TRAINSTONE_UNROLLED
      for (int i = 0; i < columns; ++i)
        *reinterpret_cast<std::uint32_t*>(tile.at(row + 16 * part + group + 8 * half, 8 * i + column)) =
            lane.template pack<T>(sums[part][i].c[2 * half] * factor, sums[part][i].c[2 * half + 1] * factor);
    }
  }
}

} // namespace trainstone::Cuda
