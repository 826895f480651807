// How devices sum the columns of a matrix, on whatever kernels run: hosts have another way, which the tests of the
// kernels see.

#include "kernels/common/column_chunks.hpp"
#include "support/compare.hpp"
#include "support/instances.hpp"
#include "support/views.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <cmath>

using namespace trainstone;
using namespace trainstone::test;

namespace {

struct Sums {
  std::vector<float> values, squares;
  bool operator==(Sums const&) const = default;
};

/// Two sums per column from one team, as the parameters of a layer norm need them.
Sums device_sums(ExecutionSpace const& exec, std::vector<float> const& matrix, Index rows, Index columns) {
  using Columns = Impl::DeviceColumns;
  DeviceTensor<float> const terms_memory(matrix), values_memory(columns, 7.0F), squares_memory(columns, 7.0F);
  float const* const all_terms = terms_memory.vector().data();
  float *const values = values_memory.vector().data(), *const squares = squares_memory.vector().data();
  Kokkos::parallel_for(
      "trainstone::test::column_sums", Columns::policy(exec, columns, 2), KOKKOS_LAMBDA(Impl::Team const& team) {
        Index const first = team.league_rank() * Columns::width;
        Index const width = Impl::minimum(Columns::width, columns - first);
        float const* const terms = all_terms + first;
        Columns::sum(
            team, rows, width, [&](Index r, Index c) { return terms[r * columns + c]; },
            [&](Index c, float sum) { values[first + c] = sum; });
        Columns::sum(
            team, rows, width, [&](Index r, Index c) { return terms[r * columns + c] * terms[r * columns + c]; },
            [&](Index c, float sum) { squares[first + c] = sum; });
      });
  return {values_memory.values(), squares_memory.values()};
}

/// The same of lanes that read chunks.
Sums chunked_sums(ExecutionSpace const& exec, std::vector<float> const& matrix, Index rows, Index columns) {
  using Columns = Impl::ColumnChunks<float, 2>;
  DeviceTensor<float> const terms_memory(matrix), values_memory(columns, 7.0F), squares_memory(columns, 7.0F);
  float const* const terms = terms_memory.vector().data();
  float *const values = values_memory.vector().data(), *const squares = squares_memory.vector().data();
  Kokkos::parallel_for(
      "trainstone::test::column_chunks", Columns::policy(exec, columns, 1), KOKKOS_LAMBDA(Impl::Team const& team) {
        Index const first = team.league_rank() * Columns::width;
        int const width = static_cast<int>(Impl::minimum(Columns::width, columns - first));
        Columns::sum(
            team, rows, width,
            [&](Index r, Columns::Sums& sums) {
              for (int c = 0; c < width; ++c) {
                float const term = terms[r * columns + first + c];
                sums.values[0][c] += term;
                sums.values[1][c] += term * term;
              }
            },
            [&](int term, int c, float sum) { (term == 0 ? values : squares)[first + c] = sum; });
      });
  return {values_memory.values(), squares_memory.values()};
}

} // namespace

TEST_CASE("devices' ways to sum columns equal sums in fp64, with repeatable bits") {
  auto const sums = GENERATE(device_sums, chunked_sums);
  struct Sizes {
    Index rows, columns;
  };
  // around runs of rows, blocks of rows and tiles of columns
  for (auto const [rows, columns] :
       {Sizes{0, 5}, {1, 1}, {3, 16}, {31, 17}, {32, 15}, {33, 48}, {1000, 100}, {7001, 2}}) {
    INFO(rows << " rows, " << columns << " columns");
    std::vector<float> const matrix = random_values(rows * columns, 3);
    std::vector<double> values(static_cast<std::size_t>(columns)), squares(values.size());
    for (std::size_t i = 0; i < matrix.size(); ++i) {
      double const term = static_cast<double>(matrix[i]);
      values[i % values.size()] += term;
      squares[i % values.size()] += term * term;
    }
    Sums const actual = sums(ExecutionSpace(), matrix, rows, columns);
    // terms of at most 2 and 4: N roundings of random signs, each of at most 2 N or 4 N; a square has one of its own
    double const terms = static_cast<double>(rows), error = roundoff * terms * std::sqrt(terms);
    CHECK(mismatches<float, double>(actual.values, values, 2 * error) == "");
    CHECK(mismatches<float, double>(actual.squares, squares, 4 * error + 4 * roundoff * std::sqrt(terms)) == "");
    CHECK(sums(ExecutionSpace(), matrix, rows, columns) == actual);
    CHECK(sums(smaller_instance(), matrix, rows, columns) == actual);
  }
}
