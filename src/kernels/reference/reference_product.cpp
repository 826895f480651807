#include "kernels/reference/reference_product.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

namespace trainstone::reference {

namespace {

// A tile of C in registers, and as much of B as the second-level cache holds.
constexpr Index tile_rows = 8;
constexpr Index tile_columns = 16;
constexpr Index panel_columns = 64;
constexpr Index panel_depth = 256;

using Sums = std::array<std::array<double, tile_columns>, tile_rows>;

// g++ does not keep sums in arrays in registers: 4 GFLOP/s instead of 40 and more.
using Lanes [[gnu::vector_size(8 * sizeof(double))]] = double;

/// sums[r][c] = sum over p of a[r][p] b[p][c], for columns that lie side by side in b.
Sums tile_product(std::array<double const*, tile_rows> const& a, double const* b, Index depth) {
  Lanes left[tile_rows] = {}, right[tile_rows] = {};
  for (Index p = 0; p < depth; ++p) {
    Lanes b_left, b_right;
    std::memcpy(&b_left, b + p * tile_columns, sizeof b_left);
    std::memcpy(&b_right, b + p * tile_columns + tile_columns / 2, sizeof b_right);
    for (std::size_t r = 0; r < tile_rows; ++r) {
      left[r] += a[r][p] * b_left;
      right[r] += a[r][p] * b_right;
    }
  }
  Sums sums;
  for (std::size_t r = 0; r < tile_rows; ++r) {
    std::memcpy(sums[r].data(), &left[r], sizeof left[r]);
    std::memcpy(sums[r].data() + tile_columns / 2, &right[r], sizeof right[r]);
  }
  return sums;
}

/// Columns first to first + count of B's transpose, tile after tile, zeros where the last tile has none.
void pack(double const* b, Index b_stride, Index count, Index depth, std::vector<double>& packed) {
  for (Index j = 0; j < (count + tile_columns - 1) / tile_columns * tile_columns; ++j) {
    double* const column = packed.data() + j / tile_columns * tile_columns * depth + j % tile_columns;
    for (Index p = 0; p < depth; ++p) column[p * tile_columns] = j < count ? b[j * b_stride + p] : 0.0;
  }
}

/// What a tile becomes in C, of which `rows` and `columns` are there.
void store(Sums const& sums, double* c, Index c_stride, Index rows, Index columns, bool add) {
  for (Index r = 0; r < rows; ++r)
    for (Index j = 0; j < columns; ++j) {
      double const sum = sums[static_cast<std::size_t>(r)][static_cast<std::size_t>(j)];
      c[r * c_stride + j] = add ? c[r * c_stride + j] + sum : sum;
    }
}

} // namespace

void product_of_rows(Index m, Index n, Index k, double const* a, Index a_stride, double const* b, Index b_stride,
                     double* c, Index c_stride) {
  std::vector<double> packed(static_cast<std::size_t>(panel_columns * panel_depth));
  for (Index j = 0; j < n; j += panel_columns) {
    Index const columns = std::min(panel_columns, n - j);
    for (Index p = 0; p < std::max<Index>(k, 1); p += panel_depth) { // once for k = 0, too: the product is 0
      Index const depth = std::min(panel_depth, k - p);
      pack(b + j * b_stride + p, b_stride, columns, depth, packed);
      for (Index i = 0; i < m; i += tile_rows) {
        Index const rows = std::min(tile_rows, m - i);
        std::array<double const*, tile_rows> a_rows{};
        for (Index r = 0; r < tile_rows; ++r)
          a_rows[static_cast<std::size_t>(r)] = a + std::min(i + r, m - 1) * a_stride + p;
        for (Index t = 0; t < columns; t += tile_columns)
          store(tile_product(a_rows, packed.data() + t * depth, depth), c + i * c_stride + j + t, c_stride, rows,
                std::min(tile_columns, columns - t), p > 0);
      }
    }
  }
}

} // namespace trainstone::reference
