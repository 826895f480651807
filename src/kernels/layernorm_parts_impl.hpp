#pragma once

// Bodies of layernorm_parts.hpp; included by layernorm_parts.cpp alone.

#include "kernels/layernorm_parts.hpp"

#include "core/launch.hpp"
#include "kernels/common/row.hpp"
#include "kernels/common/shapes.hpp"
#include "kernels/layernorm.hpp"

namespace trainstone {

template <class T>
void layernorm_sums(ExecutionSpace const& exec, Matrix<T const> x, Matrix<double> sums) {
  Index const rows = Impl::extent(x, 0), columns = Impl::extent(x, 1);
  Impl::require_shape("layernorm_sums: sums", sums, {rows, 2});
  Kernel const kernel{.label = "trainstone::layernorm::sums",
                      .flops = 4 * x.size(),
                      .bytes = x.size() * sizeof(T) + sums.size() * sizeof(double)};
  launch_for(
      kernel, Impl::row_policy(exec, rows), KOKKOS_LAMBDA(Impl::Team const& team) {
        Index const n = team.league_rank();
        T const* const row = Impl::row_of(x, n);
        double const total = Impl::row_sum(team, columns, [&](Index c) { return to_float(row[c]); });
        float const mean = static_cast<float>(total / static_cast<double>(columns));
        double const squares = Impl::row_sum(team, columns, [&](Index c) {
          float const deviation = to_float(row[c]) - mean;
          return deviation * deviation;
        });
        Kokkos::single(Kokkos::PerTeam(team), [&] {
          double const around = mean; // x^2 = (x - m)^2 + 2 m x - m^2
          sums(n, 0) = total;
          sums(n, 1) = squares + around * (2 * total - around * static_cast<double>(columns));
        });
      });
}

template <class T>
void layernorm_of_sums(ExecutionSpace const& exec, Matrix<T const> x, Matrix<double const> sums, Index features,
                       Vector<T const> gamma, Vector<T const> beta, Matrix<T> y, Vector<float> mean,
                       Vector<float> rstd) {
  Index const rows = Impl::extent(x, 0), columns = Impl::extent(x, 1);
  Impl::require_shape("layernorm_of_sums: sums", sums, {rows, 2});
  Impl::require_shape("layernorm_of_sums: gamma", gamma, {columns});
  Impl::require_shape("layernorm_of_sums: beta", beta, {columns});
  Impl::require_shape("layernorm_of_sums: y", y, {rows, columns});
  Impl::require_shape("layernorm_of_sums: mean", mean, {rows});
  Impl::require_shape("layernorm_of_sums: rstd", rstd, {rows});
  Kernel const kernel{.label = "trainstone::layernorm::of_sums",
                      .flops = 4 * x.size(),
                      .bytes = 2 * (x.size() + gamma.size()) * sizeof(T) + sums.size() * sizeof(double) +
                               2 * mean.size() * sizeof(float)};
  double const count = static_cast<double>(features);
  launch_for(
      kernel, Impl::row_policy(exec, rows), KOKKOS_LAMBDA(Impl::Team const& team) {
        Index const n = team.league_rank();
        T const* const row = Impl::row_of(x, n);
        T* const out = Impl::row_of(y, n);
        double const exact_mean = sums(n, 0) / count, variance = sums(n, 1) / count - exact_mean * exact_mean;
        float const row_mean = static_cast<float>(exact_mean);
        float const row_rstd =
            static_cast<float>(1.0 / Kokkos::sqrt((variance > 0 ? variance : 0.0) + layernorm_epsilon));
        Impl::row_for(team, columns, [&](Index c) {
          out[c] = from_float<T>((to_float(row[c]) - row_mean) * row_rstd * to_float(gamma(c)) + to_float(beta(c)));
        });
        Kokkos::single(Kokkos::PerTeam(team), [&] {
          mean(n) = row_mean;
          rstd(n) = row_rstd;
        });
      });
}

namespace Impl {

template <class T>
void require_parts(char const* what, Matrix<T const> const& d_y, Matrix<T const> const& x, Vector<T const> const& gamma,
                   Vector<float const> const& mean, Vector<float const> const& rstd, Matrix<double const> const& sums) {
  Index const rows = extent(x, 0);
  require_shape(what, d_y, {rows, extent(x, 1)});
  require_shape(what, gamma, {extent(x, 1)});
  require_shape(what, mean, {rows});
  require_shape(what, rstd, {rows});
  require_shape(what, sums, {rows, 2});
}

} // namespace Impl

template <class T>
void layernorm_backward_sums(ExecutionSpace const& exec, Matrix<T const> d_y, Matrix<T const> x, Vector<T const> gamma,
                             Vector<float const> mean, Vector<float const> rstd, Matrix<double> sums) {
  Impl::require_parts<T>("layernorm_backward_sums", d_y, x, gamma, mean, rstd, sums);
  Index const rows = Impl::extent(x, 0), columns = Impl::extent(x, 1);
  Kernel const kernel{.label = "trainstone::layernorm::backward_sums",
                      .flops = 6 * x.size(),
                      .bytes = (2 * x.size() + gamma.size()) * sizeof(T) + sums.size() * sizeof(double) +
                               2 * mean.size() * sizeof(float)};
  launch_for(
      kernel, Impl::row_policy(exec, rows), KOKKOS_LAMBDA(Impl::Team const& team) {
        Index const n = team.league_rank();
        T const* const d_row = Impl::row_of(d_y, n);
        T const* const row = Impl::row_of(x, n);
        float const row_mean = mean(n), row_rstd = rstd(n);
        double const of_d =
            Impl::row_sum(team, columns, [&](Index c) { return to_float(d_row[c]) * to_float(gamma(c)); });
        double const of_d_norm = Impl::row_sum(team, columns, [&](Index c) {
          return to_float(d_row[c]) * to_float(gamma(c)) * ((to_float(row[c]) - row_mean) * row_rstd);
        });
        Kokkos::single(Kokkos::PerTeam(team), [&] {
          sums(n, 0) = of_d;
          sums(n, 1) = of_d_norm;
        });
      });
}

template <class T>
void layernorm_backward_of_sums(ExecutionSpace const& exec, Matrix<T const> d_y, Matrix<T const> x,
                                Vector<T const> gamma, Vector<float const> mean, Vector<float const> rstd,
                                Matrix<double const> sums, Index features, Matrix<T> d_x, Write d_x_mode) {
  Impl::require_parts<T>("layernorm_backward_of_sums", d_y, x, gamma, mean, rstd, sums);
  Index const rows = Impl::extent(x, 0), columns = Impl::extent(x, 1);
  Impl::require_shape("layernorm_backward_of_sums: d_x", d_x, {rows, columns});
  Kernel const kernel{.label = "trainstone::layernorm::backward_of_sums",
                      .flops = 7 * x.size(),
                      .bytes = ((d_x_mode == Write::add ? 4 : 3) * x.size() + gamma.size()) * sizeof(T) +
                               sums.size() * sizeof(double) + 2 * mean.size() * sizeof(float)};
  double const count = static_cast<double>(features);
  launch_for(
      kernel, Impl::row_policy(exec, rows), KOKKOS_LAMBDA(Impl::Team const& team) {
        Index const n = team.league_rank();
        T const* const d_row = Impl::row_of(d_y, n);
        T const* const row = Impl::row_of(x, n);
        T* const out = Impl::row_of(d_x, n);
        float const row_mean = mean(n), row_rstd = rstd(n);
        float const mean_d = static_cast<float>(sums(n, 0) / count),
                    mean_d_norm = static_cast<float>(sums(n, 1) / count);
        Impl::row_for(team, columns, [&](Index c) {
          float const norm = (to_float(row[c]) - row_mean) * row_rstd;
          Impl::write(out[c], row_rstd * (to_float(d_row[c]) * to_float(gamma(c)) - mean_d - norm * mean_d_norm),
                      d_x_mode);
        });
      });
}

} // namespace trainstone
