#pragma once

// Bodies of bias_gelu.hpp; included by bias_gelu.cpp alone.

#include "kernels/bias_gelu.hpp"

#include "core/launch.hpp"
#include "kernels/common/math.hpp"
#include "kernels/common/row.hpp"
#include "kernels/common/shapes.hpp"

namespace trainstone {

namespace Impl {

/// gelu(x) = x / (1 + e^(-2 u)), u = sqrt(2 / pi) (x + 0.044715 x^3).
KOKKOS_INLINE_FUNCTION float gelu_exponential(float x) {
  float const twice_u = 1.5957691216F * x * (1.0F + 0.044715F * x * x);
  return exponential(-twice_u);
}

KOKKOS_INLINE_FUNCTION float gelu(float x) { return x / (1.0F + gelu_exponential(x)); }

/// s + x s (1 - s) 2 u', with the sigmoid s and 1 - s = e^(-2 u) s, which keeps its relative accuracy.
KOKKOS_INLINE_FUNCTION float gelu_derivative(float x) {
  float const e = gelu_exponential(x);
  float const s = 1.0F / (1.0F + e);
  float const twice_u_prime = 1.5957691216F * (1.0F + 3.0F * 0.044715F * x * x);
  return s + x * s * (e * s) * twice_u_prime;
}

} // namespace Impl

template <class T>
void add_bias(ExecutionSpace const& exec, Vector<T const> bias, Matrix<T const> x, Matrix<T> y) {
  Index const rows = Impl::extent(x, 0), columns = Impl::extent(x, 1);
  Impl::require_shape("add_bias: bias", bias, {columns});
  Impl::require_shape("add_bias: y", y, {rows, columns});
  Kernel const kernel{
      .label = "trainstone::bias::forward", .flops = x.size(), .bytes = (2 * x.size() + bias.size()) * sizeof(T)};
  launch_for(
      kernel, Impl::row_policy(exec, rows), KOKKOS_LAMBDA(Impl::Team const& team) {
        T const* const bias_row = bias.data();
        T const* const x_row = Impl::row_of(x, team.league_rank());
        T* const y_row = Impl::row_of(y, team.league_rank());
        Impl::row_for(team, columns,
                      [&](Index c) { y_row[c] = from_float<T>(to_float(x_row[c]) + to_float(bias_row[c])); });
      });
}

template <class T>
void bias_gelu_forward(ExecutionSpace const& exec, Vector<T const> bias, Matrix<T const> x, Matrix<T> pre,
                       Matrix<T> y) {
  Index const rows = Impl::extent(x, 0), columns = Impl::extent(x, 1);
  Impl::require_shape("bias_gelu_forward: bias", bias, {columns});
  Impl::require_shape("bias_gelu_forward: pre", pre, {rows, columns});
  Impl::require_shape("bias_gelu_forward: y", y, {rows, columns});
  Kernel const kernel{.label = "trainstone::bias_gelu::forward",
                      .flops = 10 * x.size(),
                      .bytes = (3 * x.size() + bias.size()) * sizeof(T)};
  launch_for(
      kernel, Impl::row_policy(exec, rows), KOKKOS_LAMBDA(Impl::Team const& team) {
        T const* const bias_row = bias.data();
        T const* const x_row = Impl::row_of(x, team.league_rank());
        T* const pre_row = Impl::row_of(pre, team.league_rank());
        T* const y_row = Impl::row_of(y, team.league_rank());
        Impl::row_for(team, columns, [&](Index c) {
          T const biased = from_float<T>(to_float(x_row[c]) + to_float(bias_row[c]));
          pre_row[c] = biased;
          y_row[c] = from_float<T>(Impl::gelu(to_float(biased)));
        });
      });
}

template <class T>
void gelu_backward(ExecutionSpace const& exec, Matrix<T const> x, Matrix<T> d_y_in_d_x_out) {
  Index const rows = Impl::extent(x, 0), columns = Impl::extent(x, 1);
  Impl::require_shape("gelu_backward: d_y_in_d_x_out", d_y_in_d_x_out, {rows, columns});
  Kernel const kernel{.label = "trainstone::gelu::backward", .flops = 16 * x.size(), .bytes = 3 * x.size() * sizeof(T)};
  launch_for(
      kernel, Impl::row_policy(exec, rows), KOKKOS_LAMBDA(Impl::Team const& team) {
        T const* const x_row = Impl::row_of(x, team.league_rank());
        T* const d_row = Impl::row_of(d_y_in_d_x_out, team.league_rank());
        Impl::row_for(team, columns, [&](Index c) {
          d_row[c] = from_float<T>(to_float(d_row[c]) * Impl::gelu_derivative(to_float(x_row[c])));
        });
      });
}

template <class T, class Gradient>
void bias_backward(ExecutionSpace const& exec, Matrix<T const> d_y, Vector<Gradient> d_bias, Write mode) {
  Index const rows = Impl::extent(d_y, 0), columns = Impl::extent(d_y, 1);
  Impl::require_shape("bias_backward: d_bias", d_bias, {columns});
  Kernel const kernel{.label = "trainstone::bias::backward",
                      .flops = d_y.size(),
                      .bytes =
                          d_y.size() * sizeof(T) + (mode == Write::add ? 2 : 1) * d_bias.size() * sizeof(Gradient)};
  using Columns = Impl::MatrixColumns;
  launch_for(
      kernel, Columns::policy(exec, columns, 1), KOKKOS_LAMBDA(Impl::Team const& team) {
        Index const first = team.league_rank() * Columns::width;
        T const* const terms = d_y.data() + first;
        Gradient* const sums = d_bias.data() + first;
        Columns::sum(
            team, rows, Impl::minimum(Columns::width, columns - first),
            [&](Index n, Index c) { return to_float(terms[n * columns + c]); },
            [&](Index c, float sum) { Impl::write(sums[c], sum, mode); });
      });
}

} // namespace trainstone
