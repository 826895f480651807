#pragma once

// Body of residual.hpp; included by residual.cpp alone.

#include "kernels/residual.hpp"

#include "core/launch.hpp"
#include "kernels/common/row.hpp"
#include "kernels/common/shapes.hpp"

namespace trainstone {

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
  launch_for(
      kernel, Impl::row_policy(exec, rows), KOKKOS_LAMBDA(Impl::Team const& team) {
        Index const n = team.league_rank();
        Impl::add_branch(team, columns, Impl::row_of(x, n), Impl::row_of(branch, n), branch_bias.data(),
                         Impl::row_of(sum, n));
      });
}

} // namespace trainstone
