#include "kernels/reference/reference_product.hpp"

#include "core/random.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <cmath>
#include <vector>

using namespace trainstone;

namespace {

std::vector<double> numbers(std::int64_t count, std::uint64_t seed) {
  std::vector<double> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = normal(seed, RandomStream::tests, i);
  return values;
}

} // namespace

TEST_CASE("a product of rows in blocks is the plain product, on odd sizes and with strides", "[reference]") {
  struct Size {
    std::int64_t m, n, k;
  };
  auto const [m, n, k] = GENERATE(Size{1, 1, 1}, Size{7, 15, 3}, Size{8, 16, 256}, Size{9, 17, 257}, Size{65, 131, 600},
                                  Size{3, 64, 0}, Size{0, 5, 4}, Size{5, 0, 4});
  INFO(m << " x " << n << " x " << k);
  std::int64_t const a_stride = k + 2, b_stride = k + 3, c_stride = n + 1;
  std::vector<double> const a = numbers(m * a_stride + 1, 1), b = numbers(n * b_stride + 1, 2);
  std::vector<double> c(static_cast<std::size_t>(m * c_stride + 1), -3.0);
  reference::product_of_rows(m, n, k, a.data(), a_stride, b.data(), b_stride, c.data(), c_stride);
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      double sum = 0, size = 0;
      for (std::int64_t p = 0; p < k; ++p) {
        double const term =
            a[static_cast<std::size_t>(i * a_stride + p)] * b[static_cast<std::size_t>(j * b_stride + p)];
        sum += term;
        size += std::abs(term);
      }
      // either sum is off by at most k times 2^-53 of the terms' size
      REQUIRE(std::abs(c[static_cast<std::size_t>(i * c_stride + j)] - sum) <= 0x1p-52 * static_cast<double>(k) * size);
    }
    CHECK(c[static_cast<std::size_t>(i * c_stride + n)] == -3.0); // behind the row
  }
}
