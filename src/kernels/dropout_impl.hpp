#pragma once

// Bodies of dropout.hpp; included by dropout.cpp alone.

#include "kernels/dropout.hpp"

#include "core/launch.hpp"
#include "kernels/common/row.hpp"
#include "kernels/common/shapes.hpp"
#include "kernels/dropout_mask.hpp"

namespace trainstone {

namespace Impl {

template <class T>
struct DropoutForward {
  DropoutRows rows;
  Index sequence, columns;
  T const* bias; ///< or null
  T* x;
  MaskByte* mask; ///< or null

  KOKKOS_INLINE_FUNCTION void operator()(Team const& team) const {
    Index const n = team.league_rank();
    T* const x_row = x + n * columns;
    MaskByte* const mask_row = mask ? mask + n * columns : nullptr;
    DropoutRow const row = rows.row(n / sequence, n % sequence);
    dropout_for(team, row, columns, [&](Index c, bool kept) {
      float const value = to_float(x_row[c]) + (bias ? to_float(bias[c]) : 0.0F);
      x_row[c] = from_float<T>(kept ? value * row.scale : 0.0F);
      if (mask_row) mask_row[c] = kept ? 1 : 0;
    });
  }
};

template <class T>
struct DropoutBackward {
  DropoutRows rows;
  Index sequence, columns;
  MaskByte const* mask; ///< or null
  T const* d_y;
  T* d_x;

  KOKKOS_INLINE_FUNCTION void operator()(Team const& team) const {
    Index const n = team.league_rank();
    T const* const d_y_row = d_y + n * columns;
    T* const d_x_row = d_x + n * columns;
    DropoutRow const row = rows.row(n / sequence, n % sequence);
    auto const store = [&](Index c, bool kept) {
      d_x_row[c] = from_float<T>(kept ? to_float(d_y_row[c]) * row.scale : 0.0F);
    };
    if (!mask) return dropout_for(team, row, columns, store);
    MaskByte const* const mask_row = mask + n * columns;
    row_for(team, columns, [&](Index c) { store(c, mask_row[c] != 0); });
  }
};

} // namespace Impl

template <class T>
void dropout_forward(ExecutionSpace const& exec, Dropout const& dropout, Index sequence, Vector<T const> bias,
                     Matrix<T> x, Matrix<MaskByte> mask) {
  Index const rows = Impl::extent(x, 0), columns = Impl::extent(x, 1);
  Impl::require_sequences("dropout_forward", rows, sequence);
  if (bias.size() > 0) Impl::require_shape("dropout_forward: bias", bias, {columns});
  if (mask.size() > 0) Impl::require_shape("dropout_forward: mask", mask, {rows, columns});
  Kernel const kernel{.label = "trainstone::dropout::forward",
                      .flops = 2 * x.size(),
                      .bytes = (2 * x.size() + bias.size()) * sizeof(T) + mask.size()};
  launch_for(kernel, Impl::row_policy(exec, rows),
             Impl::DropoutForward<T>{Impl::DropoutRows(dropout, sequence), sequence, columns, bias.data(), x.data(),
                                     mask.size() > 0 ? mask.data() : nullptr});
}

template <class T>
void dropout_backward(ExecutionSpace const& exec, Dropout const& dropout, Index sequence, Matrix<MaskByte const> mask,
                      Matrix<T const> d_y, Matrix<T> d_x) {
  Index const rows = Impl::extent(d_y, 0), columns = Impl::extent(d_y, 1);
  Impl::require_sequences("dropout_backward", rows, sequence);
  Impl::require_shape("dropout_backward: d_x", d_x, {rows, columns});
  if (mask.size() > 0) Impl::require_shape("dropout_backward: mask", mask, {rows, columns});
  Kernel const kernel{
      .label = "trainstone::dropout::backward", .flops = d_y.size(), .bytes = 2 * d_y.size() * sizeof(T) + mask.size()};
  launch_for(kernel, Impl::row_policy(exec, rows),
             Impl::DropoutBackward<T>{Impl::DropoutRows(dropout, sequence), sequence, columns,
                                      mask.size() > 0 ? mask.data() : nullptr, d_y.data(), d_x.data()});
}

} // namespace trainstone
