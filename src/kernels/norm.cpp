#include "kernels/norm_impl.hpp"

#include "kernels/common/instantiate.hpp"

namespace trainstone {

void sum(ExecutionSpace const& exec, Vector<float const> x, Vector<double> result) {
  Impl::require_shape("sum: result", result, {1});
  Index const count = Impl::extent(x, 0);
  Kernel const kernel{.label = "trainstone::norm::sum", .flops = x.size(), .bytes = x.size() * sizeof(float) + 8};
  launch_for(
      kernel, Impl::row_policy(exec, 1), KOKKOS_LAMBDA(Impl::Team const& team) {
        double const total = Impl::row_sum(team, count, [&](Index i) { return x(i); });
        Kokkos::single(Kokkos::PerTeam(team), [&] { result(0) = total; });
      });
}

void tree_sum(ExecutionSpace const& exec, Vector<double> values, Vector<double> result) {
  using Impl::divide_up, Impl::row_for, Impl::Team;
  Impl::require_shape("tree_sum: result", result, {1});
  Index const count = Impl::extent(values, 0);
  Kernel const kernel{
      .label = "trainstone::norm::tree", .flops = values.size(), .bytes = (values.size() + 1) * sizeof(double)};
  launch_for(
      kernel, Impl::row_policy(exec, 1), KOKKOS_LAMBDA(Team const& team) {
        double* const nodes = values.data();
        for (Index stride = 1; stride < count; stride *= 2) {
          row_for(team, divide_up(count - stride, 2 * stride),
                  [&](Index i) { nodes[2 * stride * i] += nodes[2 * stride * i + stride]; });
          team.team_barrier();
        }
        Kokkos::single(Kokkos::PerTeam(team), [&] { result(0) = count > 0 ? nodes[0] : 0.0; });
      });
}

void collect_shares(ExecutionSpace const& exec, Matrix<double const> gathered, Index first, Vector<double> values) {
  Index const shares = Impl::extent(gathered, 0), count = Impl::extent(values, 0), length = count / shares;
  TRAINSTONE_REQUIRE(length * shares == count && first + length <= Impl::extent(gathered, 1),
                     "collect_shares: {} values, {} from each of {} shares of {}, from {} on", count, length, shares,
                     gathered.extent(1), first);
  Kernel const kernel{.label = "trainstone::norm::collect", .bytes = 2 * values.size() * sizeof(double)};
  launch_for(
      kernel, Impl::row_policy(exec, shares), KOKKOS_LAMBDA(Impl::Team const& team) {
        Index const share = team.league_rank();
        double const* const source = &gathered(share, first);
        double* const target = values.data() + share * length;
        Impl::row_for(team, length, [&](Index i) { target[i] = source[i]; });
      });
}

#define TRAINSTONE_INSTANTIATE(T)                                                                                      \
  template void squared_block_sums<T>(ExecutionSpace const&, Vector<T const>, Vector<double>);                         \
  template void count_non_finite<T>(ExecutionSpace const&, Vector<T const>, Vector<std::int64_t>);
TRAINSTONE_FOR_EACH_STORAGE(TRAINSTONE_INSTANTIATE)

} // namespace trainstone
