#include "kernels/layernorm_parts.hpp"

#include "core/error.hpp"
#include "kernels/reference/reference.hpp"
#include "support/compare.hpp"
#include "support/instances.hpp"
#include "support/views.hpp"

#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <vector>

using namespace trainstone;
using namespace trainstone::test;

namespace {

/// Rows whose features lie in parts of these sizes.
struct Sizes {
  Index rows;
  std::vector<Index> parts;

  Index columns() const {
    Index sum = 0;
    for (Index const part : parts) sum += part;
    return sum;
  }
  Index elements() const { return rows * columns(); }
};

std::vector<Sizes> const all_sizes{{1, {1}}, {3, {1, 2}}, {0, {3, 2}}, {7, {13, 13}}, {5, {600, 7, 424}}};

/// The columns [begin, begin + count) of rows.
template <class T>
std::vector<T> part_of(std::vector<T> const& all, Sizes const& s, Index begin, Index count) {
  std::vector<T> part;
  for (Index row = 0; row < s.rows; ++row) {
    auto const first = all.begin() + row * s.columns() + begin;
    part.insert(part.end(), first, first + count);
  }
  return part;
}

/// Calls body(begin, columns) for each part.
template <class Body>
void for_each_part(Sizes const& s, Body const& body) {
  Index begin = 0;
  for (Index const columns : s.parts) {
    body(begin, columns);
    begin += columns;
  }
}

void add_to(std::vector<double>& sums, std::vector<double> const& of_part) {
  std::ranges::transform(sums, of_part, sums.begin(), std::plus<>());
}

} // namespace

TEMPLATE_LIST_TEST_CASE("layer norm of parts of the features equals the reference of whole rows", "", StorageTypes) {
  using T = TestType;
  ExecutionSpace const exec;
  for (Sizes const& s : all_sizes)
    for (double const offset : {0.0, 100.0}) { // a mean of 100 times the deviation must not lose the variance
      Index const columns = s.columns();
      std::vector<T> const x = stored<T>(random_values(s.elements(), 1, offset - 1, offset + 1)),
                           gamma = stored<T>(random_values(columns, 2)), beta = stored<T>(random_values(columns, 3));
      std::vector<double> y(static_cast<std::size_t>(s.elements())), mean(static_cast<std::size_t>(s.rows)),
          rstd(mean.size()), sums(2 * mean.size(), 0.0);
      reference::layernorm_forward(widened(x), widened(gamma), widened(beta), y, mean, rstd);
      for_each_part(s, [&](Index begin, Index count) {
        DeviceTensor<T> const part(part_of(x, s, begin, count));
        DeviceTensor<double> const of_part(2 * s.rows, 9.0);
        layernorm_sums<T>(exec, part.matrix(s.rows, count), of_part.matrix(s.rows, 2));
        add_to(sums, of_part.values());
      });
      for_each_part(s, [&](Index begin, Index count) {
        INFO(s.rows << " rows, columns " << begin << " to " << begin + count << ", mean " << offset);
        DeviceTensor<T> const part(part_of(x, s, begin, count)), of_gamma(part_of(gamma, {1, {columns}}, begin, count)),
            of_beta(part_of(beta, {1, {columns}}, begin, count)), out(s.rows * count, from_float<T>(9.0F));
        DeviceTensor<float> const mean_d(s.rows, 9.0F), rstd_d(s.rows, 9.0F);
        DeviceTensor<double> const all(sums);
        layernorm_of_sums<T>(exec, part.matrix(s.rows, count), all.matrix(s.rows, 2), columns, of_gamma.vector(),
                             of_beta.vector(), out.matrix(s.rows, count), mean_d.vector(), rstd_d.vector());
        // x - mean loses the mean's rounding, which rstd enlarges; then a few roundings of what is at most 2 sqrt(C)
        double const rstd_most = std::max(1.0, largest<double>(rstd));
        double const bound = roundoff * ((offset + 1) * 4 * rstd_most + 16 * std::sqrt(static_cast<double>(columns)));
        CHECK(mismatches<double, double>(widened(out.values()), part_of(y, s, begin, count),
                                         stored_within<T>(2 * bound)) == "");
        CHECK(mismatches<float, double>(mean_d.values(), mean, stored_within<float>(4 * roundoff * (offset + 1))) ==
              "");
      });
    }
}

TEMPLATE_LIST_TEST_CASE("the input's gradient of layer norm of parts equals the reference in both modes", "",
                        StorageTypes) {
  using T = TestType;
  ExecutionSpace const exec;
  for (Sizes const& s : all_sizes)
    for (Write const mode : {Write::overwrite, Write::add}) {
      Index const columns = s.columns();
      std::vector<T> const x = stored<T>(random_values(s.elements(), 1)),
                           d_y = stored<T>(random_values(s.elements(), 6)),
                           gamma = stored<T>(random_values(columns, 2));
      std::vector<double> y(static_cast<std::size_t>(s.elements())), mean(static_cast<std::size_t>(s.rows)),
          rstd(mean.size()), sums(2 * mean.size(), 0.0);
      std::vector<double> const zero(static_cast<std::size_t>(columns), 0.0);
      reference::layernorm_forward(widened(x), widened(gamma), zero, y, mean, rstd);
      std::vector<float> const mean_f(mean.begin(), mean.end()), rstd_f(rstd.begin(), rstd.end());
      double const before = mode == Write::add ? 1.0 : 0.0;
      std::vector<double> d_x(y.size(), before), d_gamma(zero), d_beta(zero);
      reference::layernorm_backward(widened(d_y), widened(x), widened(gamma), widened(mean_f), widened(rstd_f), d_x,
                                    d_gamma, d_beta);
      DeviceTensor<float> const mean_d(mean_f), rstd_d(rstd_f);
      auto const tensor = [&](std::vector<T> const& all, Index begin, Index count) {
        return DeviceTensor<T>(part_of(all, all.size() == x.size() ? s : Sizes{1, {columns}}, begin, count));
      };
      for_each_part(s, [&](Index begin, Index count) {
        DeviceTensor<T> const part = tensor(x, begin, count), of_d_y = tensor(d_y, begin, count),
                              of_gamma(part_of(gamma, {1, {columns}}, begin, count));
        DeviceTensor<double> const of_part(2 * s.rows, 9.0);
        layernorm_backward_sums<T>(exec, of_d_y.matrix(s.rows, count), part.matrix(s.rows, count), of_gamma.vector(),
                                   mean_d.vector(), rstd_d.vector(), of_part.matrix(s.rows, 2));
        add_to(sums, of_part.values());
      });
      for_each_part(s, [&](Index begin, Index count) {
        INFO(s.rows << " rows, columns " << begin << " to " << begin + count);
        DeviceTensor<T> const part = tensor(x, begin, count), of_d_y = tensor(d_y, begin, count),
                              of_gamma(part_of(gamma, {1, {columns}}, begin, count)),
                              out(s.rows * count, from_float<T>(static_cast<float>(before)));
        DeviceTensor<double> const all(sums);
        layernorm_backward_of_sums<T>(exec, of_d_y.matrix(s.rows, count), part.matrix(s.rows, count), of_gamma.vector(),
                                      mean_d.vector(), rstd_d.vector(), all.matrix(s.rows, 2), columns,
                                      out.matrix(s.rows, count), mode);
        // rstd times terms of at most 4, 4 and 2 * 8, each after a few roundings, as of whole rows
        double const rstd_most = std::max(1.0, largest<double>(rstd));
        CHECK(mismatches<double, double>(widened(out.values()), part_of(d_x, s, begin, count),
                                         stored_within<T>(roundoff * (8 * rstd_most * 24 + before))) == "");
      });
    }
}

TEST_CASE("layer norm of parts names both shapes when extents differ") {
  ExecutionSpace const exec;
  DeviceTensor<float> const x(6, 1.0F), gamma(3, 1.0F), rows(2, 1.0F);
  DeviceTensor<double> const sums(6, 1.0);
  CHECK_THROWS_AS(layernorm_sums<float>(exec, x.matrix(2, 3), sums.matrix(3, 2)), Error);
  CHECK_THROWS_AS(layernorm_of_sums<float>(exec, x.matrix(2, 3), sums.matrix(3, 2), 3, gamma.vector(), gamma.vector(),
                                           x.matrix(2, 3), rows.vector(), rows.vector()),
                  Error);
  CHECK_THROWS_AS(layernorm_backward_sums<float>(exec, x.matrix(3, 2), x.matrix(2, 3), gamma.vector(), rows.vector(),
                                                 rows.vector(), sums.matrix(2, 2)),
                  Error);
}
