#pragma once

// Body of residual.hpp; included by residual.cpp alone.

#include "kernels/residual.hpp"

#include "core/launch.hpp"
#include "kernels/common/held_row.hpp"
#include "kernels/common/shapes.hpp"

namespace trainstone {

namespace Impl {

template <class T>
struct Residual {
  Index columns;
  T const *x, *branch, *bias;
  T* sum;

  template <class Row>
  KOKKOS_FUNCTION void operator()(Row const& row, Index n) const {
    add_branch(row, x + n * columns, branch + n * columns, bias, sum + n * columns);
  }
};

} // namespace Impl

template <class T>
void residual_forward(ExecutionSpace const& exec, Matrix<T const> x, Matrix<T const> branch,
                      Vector<T const> branch_bias, Matrix<T> sum) {
  Index const rows = Impl::extent(x, 0), columns = Impl::extent(x, 1);
  Impl::require_shape("residual_forward: branch", branch, {rows, columns});
  if (branch_bias.size() > 0) Impl::require_shape("residual_forward: branch_bias", branch_bias, {columns});
  Impl::require_shape("residual_forward: sum", sum, {rows, columns});
  std::uint64_t const elements = x.size();
  Kernel const kernel{.label = "trainstone::residual::forward",
                      .flops = 2 * elements,
                      .bytes = (3 * elements + branch_bias.size()) * sizeof(T)};
  T const* const bias = branch_bias.data();
  Impl::Residual<T> const body{columns, x.data(), branch.data(), bias, sum.data()};
  Impl::launch_rows<T>(kernel, exec, rows, columns,
                       Impl::lie_in_chunks<T>(columns, {x.data(), branch.data(), bias, sum.data()}), body);
}

} // namespace trainstone
