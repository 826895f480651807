#pragma once

// Bodies of layernorm.hpp; included by layernorm.cpp alone.

#include "kernels/layernorm.hpp"

#include "core/launch.hpp"
#include "kernels/common/column_chunks.hpp"
#include "kernels/common/held_row.hpp"
#include "kernels/common/shapes.hpp"

namespace trainstone {

namespace Impl {

/// y = layer norm of one row x, which is held; statistics in two passes.
template <class Row, class Values, class T>
KOKKOS_FORCEINLINE_FUNCTION void normalize_row(Row const& row, Index columns, Values const& x, T const* gamma,
                                               T const* beta, T* y, float& kept_mean, float& kept_rstd) {
  double const count = static_cast<double>(columns);
  float const mean = static_cast<float>(row.sum([&](auto c) { return x(c); }) / count);
  double const squares = row.sum([&](auto c) {
    float const deviation = x(c) - mean;
    return deviation * deviation;
  });
  float const rstd = static_cast<float>(1.0 / Kokkos::sqrt(squares / count + layernorm_epsilon));
  auto const factor = row.hold(gamma);
  auto const shift = row.hold(beta);
  row.write(y, Write::overwrite, [&](auto c) { return (x(c) - mean) * rstd * factor(c) + shift(c); });
  row.once([&] {
    kept_mean = mean;
    kept_rstd = rstd;
  });
}

template <class T>
struct LayerNormForward {
  Index columns;
  T const *x, *gamma, *beta;
  T* y;
  float *mean, *rstd;

  template <class Row>
  KOKKOS_FUNCTION void operator()(Row const& row, Index n) const {
    normalize_row(row, columns, row.hold(x + n * columns), gamma, beta, y + n * columns, mean[n], rstd[n]);
  }
};

/// Of x + (branch + bias); `bias` may be null.
template <class T>
struct ResidualLayerNorm {
  Index columns;
  T const *x, *branch, *bias, *gamma, *beta;
  T *sum, *y;
  float *mean, *rstd;

  template <class Row>
  KOKKOS_FUNCTION void operator()(Row const& row, Index n) const {
    auto const all = add_branch(row, x + n * columns, branch + n * columns, bias, sum + n * columns);
    normalize_row(row, columns, all, gamma, beta, y + n * columns, mean[n], rstd[n]);
  }
};

/// d_x (+)= rstd (d_norm - mean of d_norm - norm * mean of (d_norm norm)), with norm = (x - mean) rstd and
/// d_norm = d_y gamma.
template <class T>
struct LayerNormBackward {
  Index columns;
  T const *d_y, *x, *gamma;
  float const *mean, *rstd;
  T* d_x;
  Write mode;

  template <class Row>
  KOKKOS_FUNCTION void operator()(Row const& row, Index n) const {
    double const count = static_cast<double>(columns);
    float const row_mean = mean[n], row_rstd = rstd[n];
    auto const d = row.hold(d_y + n * columns), factor = row.hold(gamma), in = row.hold(x + n * columns);
    float const mean_d = static_cast<float>(row.sum([&](auto c) { return d(c) * factor(c); }) / count);
    float const mean_d_norm =
        static_cast<float>(row.sum([&](auto c) { return d(c) * factor(c) * ((in(c)-row_mean) * row_rstd); }) / count);
    row.write(d_x + n * columns, mode, [&](auto c) {
      float const norm = (in(c)-row_mean) * row_rstd;
      return row_rstd * (d(c) * factor(c) - mean_d - norm * mean_d_norm);
    });
  }
};

} // namespace Impl

template <class T>
void layernorm_forward(ExecutionSpace const& exec, Matrix<T const> x, Vector<T const> gamma, Vector<T const> beta,
                       Matrix<T> y, Vector<float> mean, Vector<float> rstd) {
  Index const rows = Impl::extent(x, 0), columns = Impl::extent(x, 1);
  Impl::require_shape("layernorm_forward: gamma", gamma, {columns});
  Impl::require_shape("layernorm_forward: beta", beta, {columns});
  Impl::require_shape("layernorm_forward: y", y, {rows, columns});
  Impl::require_shape("layernorm_forward: mean", mean, {rows});
  Impl::require_shape("layernorm_forward: rstd", rstd, {rows});
  Kernel const kernel{.label = "trainstone::layernorm::forward",
                      .flops = 8 * x.size(),
                      .bytes = 2 * (x.size() + gamma.size()) * sizeof(T) + 2 * mean.size() * sizeof(float)};
  Impl::LayerNormForward<T> const body{columns,  x.data(),    gamma.data(), beta.data(),
                                       y.data(), mean.data(), rstd.data()};
  Impl::launch_rows<T>(kernel, exec, rows, columns,
                       Impl::lie_in_chunks<T>(columns, {x.data(), gamma.data(), beta.data(), y.data()}), body);
}

template <class T>
void residual_layernorm_forward(ExecutionSpace const& exec, Matrix<T const> x, Matrix<T const> branch,
                                Vector<T const> branch_bias, Vector<T const> gamma, Vector<T const> beta, Matrix<T> sum,
                                Matrix<T> y, Vector<float> mean, Vector<float> rstd) {
  Index const rows = Impl::extent(x, 0), columns = Impl::extent(x, 1);
  Impl::require_shape("residual_layernorm_forward: branch", branch, {rows, columns});
  if (branch_bias.size() > 0) Impl::require_shape("residual_layernorm_forward: branch_bias", branch_bias, {columns});
  Impl::require_shape("residual_layernorm_forward: gamma", gamma, {columns});
  Impl::require_shape("residual_layernorm_forward: beta", beta, {columns});
  Impl::require_shape("residual_layernorm_forward: sum", sum, {rows, columns});
  Impl::require_shape("residual_layernorm_forward: y", y, {rows, columns});
  Impl::require_shape("residual_layernorm_forward: mean", mean, {rows});
  Impl::require_shape("residual_layernorm_forward: rstd", rstd, {rows});
  Kernel const kernel{.label = "trainstone::layernorm::residual_forward",
                      .flops = 10 * x.size(),
                      .bytes = (4 * x.size() + 3 * gamma.size()) * sizeof(T) + 2 * mean.size() * sizeof(float)};
  T const* const bias = branch_bias.data();
  Impl::ResidualLayerNorm<T> const body{columns,     x.data(),   branch.data(), bias,        gamma.data(),
                                        beta.data(), sum.data(), y.data(),      mean.data(), rstd.data()};
  bool const in_chunks =
      Impl::lie_in_chunks<T>(columns, {x.data(), branch.data(), bias, gamma.data(), beta.data(), sum.data(), y.data()});
  Impl::launch_rows<T>(kernel, exec, rows, columns, in_chunks, body);
}

namespace Impl {

/// The work of summing over rows for gamma and beta; what is written is not counted.
template <class T>
Kernel layernorm_parameters(char const* label, Matrix<T const> const& x, std::uint64_t written_bytes) {
  return {.label = label,
          .flops = 4 * x.size(),
          .bytes = 2 * x.size() * sizeof(T) + written_bytes + 2 * x.extent(0) * sizeof(float)};
}

/// What a row adds to the gradients of gamma and beta, in a tile of columns that begins at `first`.
template <class T>
struct LayerNormTerms {
  T const* d_y;
  T const* x;
  float const* mean;
  float const* rstd;
  Index columns;

  KOKKOS_INLINE_FUNCTION LayerNormTerms from(Index first) const {
    return {d_y + first, x + first, mean, rstd, columns};
  }
  KOKKOS_INLINE_FUNCTION float gamma(Index n, Index c) const {
    float const norm = (to_float(x[n * columns + c]) - mean[n]) * rstd[n];
    return to_float(d_y[n * columns + c]) * norm;
  }
  KOKKOS_INLINE_FUNCTION float beta(Index n, Index c) const { return to_float(d_y[n * columns + c]); }

  /// Of `width` columns, which begin where 16 bytes can be read.
  template <class Sums>
  KOKKOS_FUNCTION void add(Index n, int width, Sums& sums) const {
    constexpr int size = Chunk<T>::size;
    auto const* const gradients = reinterpret_cast<Chunk<T> const*>(d_y + n * columns);
    auto const* const values = reinterpret_cast<Chunk<T> const*>(x + n * columns);
    float const row_mean = mean[n], row_rstd = rstd[n];
    TRAINSTONE_ALL_AT_ONCE
    for (int chunk = 0; chunk < ColumnChunks<T, 2>::chunks; ++chunk) {
      if (chunk * size >= width) break;
      Chunk<T> const d = gradients[chunk], in = values[chunk];
      TRAINSTONE_ALL_AT_ONCE
      for (int i = 0; i < size; ++i) {
        sums.values[0][chunk * size + i] += d[i] * ((in[i] - row_mean) * row_rstd);
        sums.values[1][chunk * size + i] += d[i];
      }
    }
  }
};

/// Rows of the groups that are summed apart: all rows, or blocks of positions.
struct AllRows {
  KOKKOS_INLINE_FUNCTION Index operator()(Index /*group*/, Index r) const { return r; }
};
struct RowsOfBlocks {
  Index sequence, length; ///< of a block
  KOKKOS_INLINE_FUNCTION Index operator()(Index block, Index r) const {
    return r / length * sequence + block * length + r % length;
  }
};

template <class Gradient>
struct LayerNormParameters {
  Gradient *gamma, *beta;
  Write mode;
  KOKKOS_INLINE_FUNCTION void operator()(Index /*group*/, bool of_beta, Index c, float total) const {
    write((of_beta ? beta : gamma)[c], total, mode);
  }
};
struct LayerNormBlocks {
  float* sums; ///< of a block: of gamma, then of beta
  Index columns;
  KOKKOS_INLINE_FUNCTION void operator()(Index block, bool of_beta, Index c, float total) const {
    sums[(2 * block + (of_beta ? 1 : 0)) * columns + c] = total;
  }
};

/// Groups of rows, and what happens to the sums of each.
template <class Rows, class Store>
struct LayerNormGroups {
  Index count, rows; ///< groups; rows of each
  Rows row;
  Store store;
};

template <class T, class Groups>
void launch_chunked_layernorm_sums(Kernel const& kernel, ExecutionSpace const& exec, LayerNormTerms<T> const& terms,
                                   Groups const& groups) {
  using Columns = ColumnChunks<T, 2>;
  Index const columns = terms.columns, tiles = divide_up(columns, Columns::width);
  launch_for(
      kernel, Columns::policy(exec, columns, groups.count), KOKKOS_LAMBDA(Team const& team) {
        Index const group = team.league_rank() / tiles, first = team.league_rank() % tiles * Columns::width;
        Index const width = minimum(Columns::width, columns - first);
        LayerNormTerms<T> const tile = terms.from(first);
        Columns::sum(
            team, groups.rows, width,
            [&](Index r, typename Columns::Sums& sums) {
              tile.add(groups.row(group, r), static_cast<int>(width), sums);
            },
            [&](int sum, int c, float total) { groups.store(group, sum == 1, first + c, total); });
      });
}

/// The sums of both terms, for every column and group.
template <class T, class Groups>
void launch_layernorm_sums(Kernel const& kernel, ExecutionSpace const& exec, LayerNormTerms<T> const& terms,
                           Groups const& groups) {
  using Columns = MatrixColumns;
  Index const columns = terms.columns;
  if constexpr (!host_reaches_memory)
    if (lie_in_chunks<T>(columns, {terms.d_y, terms.x}))
      return launch_chunked_layernorm_sums(kernel, exec, terms, groups);
  launch_for(
      kernel, Columns::policy(exec, columns, 2, groups.count), KOKKOS_LAMBDA(Team const& team) {
        Index const tiles = divide_up(columns, Columns::width), group = team.league_rank() / tiles;
        Index const first = team.league_rank() % tiles * Columns::width;
        Index const width = minimum(Columns::width, columns - first);
        LayerNormTerms<T> const tile = terms.from(first);
        Columns::sum(
            team, groups.rows, width, [&](Index r, Index c) { return tile.gamma(groups.row(group, r), c); },
            [&](Index c, float total) { groups.store(group, false, first + c, total); });
        Columns::sum(
            team, groups.rows, width, [&](Index r, Index c) { return tile.beta(groups.row(group, r), c); },
            [&](Index c, float total) { groups.store(group, true, first + c, total); });
      });
}

} // namespace Impl

template <class T>
void layernorm_backward_input(ExecutionSpace const& exec, Matrix<T const> d_y, Matrix<T const> x, Vector<T const> gamma,
                              Vector<float const> mean, Vector<float const> rstd, Matrix<T> d_x, Write d_x_mode) {
  Index const rows = Impl::extent(x, 0), columns = Impl::extent(x, 1);
  Impl::require_shape("layernorm_backward: d_y", d_y, {rows, columns});
  Impl::require_shape("layernorm_backward: gamma", gamma, {columns});
  Impl::require_shape("layernorm_backward: mean", mean, {rows});
  Impl::require_shape("layernorm_backward: rstd", rstd, {rows});
  Impl::require_shape("layernorm_backward: d_x", d_x, {rows, columns});
  Kernel const kernel{.label = "trainstone::layernorm::backward",
                      .flops = 12 * x.size(),
                      .bytes = ((d_x_mode == Write::add ? 4 : 3) * x.size() + columns) * sizeof(T) +
                               2 * mean.size() * sizeof(float)};
  Impl::LayerNormBackward<T> const body{columns,     d_y.data(),  x.data(),   gamma.data(),
                                        mean.data(), rstd.data(), d_x.data(), d_x_mode};
  Impl::launch_rows<T>(kernel, exec, rows, columns,
                       Impl::lie_in_chunks<T>(columns, {d_y.data(), x.data(), gamma.data(), d_x.data()}), body);
}

template <class T>
void layernorm_block_sums(ExecutionSpace const& exec, Matrix<T const> d_y, Matrix<T const> x, Vector<float const> mean,
                          Vector<float const> rstd, Index sequence, Matrix<float> sums) {
  Index const rows = Impl::extent(x, 0), columns = Impl::extent(x, 1), blocks = Impl::extent(sums, 0);
  Impl::require_shape("layernorm_block_sums: d_y", d_y, {rows, columns});
  Impl::require_shape("layernorm_block_sums: mean", mean, {rows});
  Impl::require_shape("layernorm_block_sums: rstd", rstd, {rows});
  Impl::require_shape("layernorm_block_sums: sums", sums, {blocks, 2 * columns});
  Impl::require_sequences("layernorm_block_sums: x", rows, sequence);
  TRAINSTONE_REQUIRE(blocks > 0 && sequence % blocks == 0, "layernorm_block_sums: {} positions in {} blocks", sequence,
                     blocks);
  Impl::LayerNormTerms<T> const terms{d_y.data(), x.data(), mean.data(), rstd.data(), columns};
  Impl::LayerNormGroups<Impl::RowsOfBlocks, Impl::LayerNormBlocks> const groups{
      blocks, rows / blocks, {sequence, sequence / blocks}, {sums.data(), columns}};
  Impl::launch_layernorm_sums(
      Impl::layernorm_parameters("trainstone::layernorm::block_sums", x, sums.size() * sizeof(float)), exec, terms,
      groups);
}

template <class Gradient>
void layernorm_sum_blocks(ExecutionSpace const& exec, Matrix<float const> sums, Vector<Gradient> d_gamma,
                          Vector<Gradient> d_beta, Write mode) {
  Index const blocks = Impl::extent(sums, 0), columns = Impl::extent(d_gamma, 0);
  Impl::require_shape("layernorm_sum_blocks: sums", sums, {blocks, 2 * columns});
  Impl::require_shape("layernorm_sum_blocks: d_beta", d_beta, {columns});
  TRAINSTONE_REQUIRE(blocks <= 1 << 16, "layernorm_sum_blocks: {} blocks", blocks);
  Kernel const kernel{.label = "trainstone::layernorm::sum_blocks",
                      .flops = sums.size(),
                      .bytes = sums.size() * sizeof(float) +
                               (mode == Write::add ? 4 : 2) * d_gamma.size() * sizeof(Gradient)};
  launch_for(
      kernel, Kokkos::RangePolicy<ExecutionSpace, Kokkos::IndexType<Index>>(exec, 0, 2 * columns),
      KOKKOS_LAMBDA(Index i) {
        float const total = Impl::tree_over(blocks, [&](Index block) { return sums(block, i); });
        Impl::write(i < columns ? d_gamma(i) : d_beta(i - columns), total, mode);
      });
}

template <class T, class Gradient>
void layernorm_backward(ExecutionSpace const& exec, Matrix<T const> d_y, Matrix<T const> x, Vector<T const> gamma,
                        Vector<float const> mean, Vector<float const> rstd, Matrix<T> d_x, Write d_x_mode,
                        Vector<Gradient> d_gamma, Vector<Gradient> d_beta, Write parameter_mode) {
  Index const rows = Impl::extent(x, 0), columns = Impl::extent(x, 1);
  Impl::require_shape("layernorm_backward: d_gamma", d_gamma, {columns});
  Impl::require_shape("layernorm_backward: d_beta", d_beta, {columns});
  layernorm_backward_input<T>(exec, d_y, x, gamma, mean, rstd, d_x, d_x_mode);
  Impl::LayerNormTerms<T> const terms{d_y.data(), x.data(), mean.data(), rstd.data(), columns};
  Impl::LayerNormGroups<Impl::AllRows, Impl::LayerNormParameters<Gradient>> const groups{
      1, rows, {}, {d_gamma.data(), d_beta.data(), parameter_mode}};
  Impl::launch_layernorm_sums(
      Impl::layernorm_parameters("trainstone::layernorm::backward_parameters", x,
                                 (parameter_mode == Write::add ? 4 : 2) * d_gamma.size() * sizeof(Gradient)),
      exec, terms, groups);
}

} // namespace trainstone
