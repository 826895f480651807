// How devices add up values for the norm, on whatever kernels run: hosts have other ways, which the tests of the
// kernels see.

#include "kernels/norm_sums_impl.hpp"
#include "kernels/reference/reference.hpp"
#include "support/instances.hpp"
#include "support/views.hpp"

#include <catch2/catch_test_macros.hpp>

#include <cmath>

using namespace trainstone;
using namespace trainstone::test;

namespace {

/// Positive values over many powers of two: fp64 rounds differently in other trees.
std::vector<double> terms_of_many_sizes(Index count) {
  std::vector<double> values;
  for (float const value : random_values(count, 4, 1.0, 2.0))
    values.push_back(std::ldexp(static_cast<double>(value), -static_cast<int>(values.size() * 7 % 31)));
  return values;
}

template <class Tree>
double tree_of(ExecutionSpace const& exec, std::vector<double> const& values) {
  DeviceTensor<double> const all(values), result(1, -1.0);
  TreeSection const section{0, static_cast<Index>(all.vector().size())};
  Impl::launch_trees<Tree>(exec, all.vector().data(), {&section, 1}, result.vector().data());
  return result.values().front();
}

double sum_of(ExecutionSpace const& exec, std::vector<float> const& values, Index begin) {
  DeviceTensor<float> const all(values);
  DeviceTensor<double> const result(1, -1.0);
  float const* const x = all.vector().data() + begin;
  double* const sum = result.vector().data();
  Index const count = static_cast<Index>(values.size()) - begin;
  Kokkos::parallel_for(
      "trainstone::test::sum", Impl::DeviceSum::policy(exec), KOKKOS_LAMBDA(Impl::Team const& team) {
        double const total = Impl::DeviceSum::sum(team, x, count);
        Kokkos::single(Kokkos::PerTeam(team), [&] { *sum = total; });
      });
  return result.values().front();
}

} // namespace

TEST_CASE("a device's tree has the bits of a tree level by level", "[norm]") {
  ExecutionSpace const exec;
  std::vector<double> const all = terms_of_many_sizes(3 * tree_leaves + 1000);
  auto const check = [&](Index count) {
    INFO(count << " values");
    std::vector<double> const values(all.begin(), all.begin() + count);
    double const expected = tree_of<Impl::HostTree>(exec, values);
    REQUIRE(tree_of<Impl::DeviceTree>(exec, values) == expected);
    REQUIRE(tree_of<Impl::DeviceTree>(smaller_instance(), values) == expected);
  };
  for (Index count = 0; count < 300; ++count) check(count);
  for (Index const near : {511, 1024, 4096, 8192, 12288})
    for (Index count = near - 9; count < near + 10; ++count) check(count);
}

TEST_CASE("a device's sum is one order for each length, wherever its vector begins", "[norm]") {
  ExecutionSpace const exec;
  for (Index const count : {0, 1, 3, 4, 13, 4095, 4097, 16384, 40001}) {
    INFO(count << " values");
    std::vector<float> values = random_values(count, 2, 0.0, 11.0);
    double const found = sum_of(exec, values, 0), expected = reference::sum(widened(values));
    CHECK(std::abs(found - expected) <= 1e-12 * expected); // fp64 throughout
    CHECK(sum_of(smaller_instance(), values, 0) == found);
    values.insert(values.begin(), 7.0F);
    CHECK(sum_of(exec, values, 1) == found);
  }
}
