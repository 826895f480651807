#include "kernels/norm_impl.hpp"

#include "kernels/common/instantiate.hpp"
#include "kernels/norm_sums_impl.hpp"

#include <algorithm>

namespace trainstone {

void sum(ExecutionSpace const& exec, Vector<float const> x, Vector<double> result) {
  Impl::require_shape("sum: result", result, {1});
  Index const count = Impl::extent(x, 0);
  Kernel const kernel{.label = "trainstone::norm::sum", .flops = x.size(), .bytes = x.size() * sizeof(float) + 8};
  launch_for(
      kernel, Impl::WholeSum::policy(exec), KOKKOS_LAMBDA(Impl::Team const& team) {
        double const total = Impl::WholeSum::sum(team, x.data(), count);
        Kokkos::single(Kokkos::PerTeam(team), [&] { result(0) = total; });
      });
}

void tree_sum(ExecutionSpace const& exec, Vector<double> values, Vector<double> result) {
  Impl::require_shape("tree_sum: result", result, {1});
  TreeSection const all{0, Impl::extent(values, 0)};
  tree_sums(exec, values, {&all, 1}, result);
}

void tree_sums(ExecutionSpace const& exec, Vector<double> values, std::span<TreeSection const> sections,
               Vector<double> results) {
  Impl::require_shape("tree_sums: results", results, {std::ssize(sections)});
  for (TreeSection const& section : sections)
    TRAINSTONE_REQUIRE(0 <= section.begin && 0 <= section.count &&
                           section.begin + section.count <= Impl::extent(values, 0),
                       "tree_sums: {} values from {} on, of {}", section.count, section.begin, values.size());
  double* sums = results.data();
  while (!sections.empty()) {
    auto const some = sections.first(std::min(sections.size(), static_cast<std::size_t>(most_tree_sections)));
    Impl::launch_trees<Impl::TreeSum>(exec, values.data(), some, sums);
    sections = sections.subspan(some.size());
    sums += some.size();
  }
}

void collect_shares(ExecutionSpace const& exec, Matrix<double const> gathered, Index first, Vector<double> values) {
  Index const shares = Impl::extent(gathered, 0), count = Impl::extent(values, 0), length = count / shares;
  TRAINSTONE_REQUIRE(length * shares == count && first + length <= Impl::extent(gathered, 1),
                     "collect_shares: {} values, {} from each of {} shares of {}, from {} on", count, length, shares,
                     gathered.extent(1), first);
  Kernel const kernel{.label = "trainstone::norm::collect", .bytes = 2 * values.size() * sizeof(double)};
  constexpr Index piece = 2048; // of a share, for one team
  Index const pieces = Impl::divide_up(length, piece);
  launch_for(
      kernel, Impl::row_policy(exec, shares * pieces), KOKKOS_LAMBDA(Impl::Team const& team) {
        Index const share = team.league_rank() / pieces, begin = team.league_rank() % pieces * piece;
        double const* const source = &gathered(share, first + begin);
        double* const target = values.data() + share * length + begin;
        Impl::row_for(team, Impl::minimum(piece, length - begin), [&](Index i) { target[i] = source[i]; });
      });
}

#define TRAINSTONE_INSTANTIATE(T)                                                                                      \
  template void squared_block_sums<T>(ExecutionSpace const&, Vector<T const>, Vector<double>);                         \
  template void count_non_finite<T>(ExecutionSpace const&, Vector<T const>, Vector<std::int64_t>);
TRAINSTONE_FOR_EACH_STORAGE(TRAINSTONE_INSTANTIATE)

} // namespace trainstone
