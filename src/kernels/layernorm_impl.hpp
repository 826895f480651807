#pragma once

// Bodies of layernorm.hpp; included by layernorm.cpp alone.

#include "kernels/layernorm.hpp"

#include "core/launch.hpp"
#include "kernels/common/row.hpp"
#include "kernels/common/shapes.hpp"

namespace trainstone {

namespace Impl {

/// y = layer norm of one row; statistics in two passes, the row being in the cache.
template <class T>
KOKKOS_INLINE_FUNCTION void normalize_row(Team const& team, Index columns, T const* x, T const* gamma, T const* beta,
                                          T* y, float& kept_mean, float& kept_rstd) {
  double const count = static_cast<double>(columns);
  float const mean = static_cast<float>(row_sum(team, columns, [&](Index c) { return to_float(x[c]); }) / count);
  double const squares = row_sum(team, columns, [&](Index c) {
    float const deviation = to_float(x[c]) - mean;
    return deviation * deviation;
  });
  float const rstd = static_cast<float>(1.0 / Kokkos::sqrt(squares / count + layernorm_epsilon));
  row_for(team, columns, [&](Index c) {
    y[c] = from_float<T>((to_float(x[c]) - mean) * rstd * to_float(gamma[c]) + to_float(beta[c]));
  });
  Kokkos::single(Kokkos::PerTeam(team), [&] {
    kept_mean = mean;
    kept_rstd = rstd;
  });
}

/// d_x (+)= rstd (d_norm - mean of d_norm - norm * mean of (d_norm norm)), with norm = (x - mean) rstd and
/// d_norm = d_y gamma.
template <class T>
KOKKOS_INLINE_FUNCTION void normalize_row_backward(Team const& team, Index columns, T const* d_y, T const* x,
                                                   T const* gamma, float mean, float rstd, T* d_x, Write mode) {
  double const count = static_cast<double>(columns);
  float const mean_d = static_cast<float>(
      row_sum(team, columns, [&](Index c) { return to_float(d_y[c]) * to_float(gamma[c]); }) / count);
  float const mean_d_norm = static_cast<float>(
      row_sum(team, columns,
              [&](Index c) { return to_float(d_y[c]) * to_float(gamma[c]) * ((to_float(x[c]) - mean) * rstd); }) /
      count);
  row_for(team, columns, [&](Index c) {
    float const norm = (to_float(x[c]) - mean) * rstd;
    write(d_x[c], rstd * (to_float(d_y[c]) * to_float(gamma[c]) - mean_d - norm * mean_d_norm), mode);
  });
}

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
  launch_for(
      kernel, Impl::row_policy(exec, rows), KOKKOS_LAMBDA(Impl::Team const& team) {
        Index const n = team.league_rank();
        Impl::normalize_row(team, columns, Impl::row_of(x, n), gamma.data(), beta.data(), Impl::row_of(y, n), mean(n),
                            rstd(n));
      });
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
  launch_for(
      kernel, Impl::row_policy(exec, rows), KOKKOS_LAMBDA(Impl::Team const& team) {
        Index const n = team.league_rank();
        T* const sum_row = Impl::row_of(sum, n);
        Impl::add_branch(team, columns, Impl::row_of(x, n), Impl::row_of(branch, n), branch_bias.data(), sum_row);
        team.team_barrier();
        Impl::normalize_row<T>(team, columns, sum_row, gamma.data(), beta.data(), Impl::row_of(y, n), mean(n), rstd(n));
      });
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
};

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
  launch_for(
      kernel, Impl::row_policy(exec, rows), KOKKOS_LAMBDA(Impl::Team const& team) {
        Index const n = team.league_rank();
        Impl::normalize_row_backward(team, columns, Impl::row_of(d_y, n), Impl::row_of(x, n), gamma.data(), mean(n),
                                     rstd(n), Impl::row_of(d_x, n), d_x_mode);
      });
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
  using Columns = Impl::MatrixColumns;
  Index const length = sequence / blocks, block_rows = rows / blocks;
  Impl::LayerNormTerms<T> const terms{d_y.data(), x.data(), mean.data(), rstd.data(), columns};
  launch_for(
      Impl::layernorm_parameters("trainstone::layernorm::block_sums", x, sums.size() * sizeof(float)),
      Columns::policy(exec, columns, 2, blocks), KOKKOS_LAMBDA(Impl::Team const& team) {
        Index const tiles = Impl::divide_up(columns, Columns::width), block = team.league_rank() / tiles;
        Index const first = team.league_rank() % tiles * Columns::width;
        Index const width = Impl::minimum(Columns::width, columns - first);
        auto const tile = terms.from(first);
        float* const of_block = Impl::row_of(sums, block) + first;
        auto const row = [&](Index r) { return r / length * sequence + block * length + r % length; };
        Columns::sum(
            team, block_rows, width, [&](Index r, Index c) { return tile.gamma(row(r), c); },
            [&](Index c, float total) { of_block[c] = total; });
        Columns::sum(
            team, block_rows, width, [&](Index r, Index c) { return tile.beta(row(r), c); },
            [&](Index c, float total) { of_block[columns + c] = total; });
      });
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
  using Columns = Impl::MatrixColumns;
  Impl::LayerNormTerms<T> const terms{d_y.data(), x.data(), mean.data(), rstd.data(), columns};
  launch_for(
      Impl::layernorm_parameters("trainstone::layernorm::backward_parameters", x,
                                 (parameter_mode == Write::add ? 4 : 2) * d_gamma.size() * sizeof(Gradient)),
      Columns::policy(exec, columns, 2), KOKKOS_LAMBDA(Impl::Team const& team) {
        Index const first = team.league_rank() * Columns::width;
        Index const width = Impl::minimum(Columns::width, columns - first);
        auto const tile = terms.from(first);
        Gradient* const gamma_sums = d_gamma.data() + first;
        Gradient* const beta_sums = d_beta.data() + first;
        Columns::sum(
            team, rows, width, [&](Index n, Index c) { return tile.gamma(n, c); },
            [&](Index c, float total) { Impl::write(gamma_sums[c], total, parameter_mode); });
        Columns::sum(
            team, rows, width, [&](Index n, Index c) { return tile.beta(n, c); },
            [&](Index c, float total) { Impl::write(beta_sums[c], total, parameter_mode); });
      });
}

} // namespace trainstone
