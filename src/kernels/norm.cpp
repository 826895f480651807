#include "kernels/norm_impl.hpp"

namespace trainstone {

void sum(ExecutionSpace const& exec, Vector<float const> x, Vector<double> result) {
  Impl::require_shape("sum: result", result, {1});
  Kernel const kernel{.label = "trainstone::norm::sum", .flops = x.size(), .bytes = x.size() * sizeof(float) + 8};
  launch_for(
      kernel, Impl::row_policy(exec, 1), KOKKOS_LAMBDA(Impl::Team const& team) {
        double const total = Impl::row_sum(team, Impl::extent(x, 0), [&](Index i) { return x(i); });
        Kokkos::single(Kokkos::PerTeam(team), [&] { result(0) = total; });
      });
}

template void squared_norm<float>(ExecutionSpace const&, Vector<float const>, Vector<double>, Vector<double>);
template void count_non_finite<float>(ExecutionSpace const&, Vector<float const>, Vector<std::int64_t>);

} // namespace trainstone
