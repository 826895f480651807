// Matrices whose product is known: against the serial product, and blocks that are swapped change it.

#include "products/plan/exact_matrices.hpp"

#include "core/error.hpp"

#include <catch2/catch_test_macros.hpp>

#include <cmath>
#include <functional>

using namespace trainstone;

namespace {

using Inner = std::function<Index(Index)>;

/// With columns of A taken from elsewhere.
Index wrong_elements(ProductSize const& size, Inner const& column_of_a, Index inner) {
  ExactMatrices const matrices(size);
  Index wrong = 0;
  for (Index i = 0; i < size.m; ++i)
    for (Index j = 0; j < size.n; ++j) {
      float sum = 0;
      for (Index l = 0; l < inner; ++l)
        sum += matrices.value(Operand::a, i, column_of_a(l)) * matrices.value(Operand::b, l, j);
      wrong += sum != matrices.product(i, j);
    }
  return wrong;
}

} // namespace

TEST_CASE("the product that is known is the serial one, with zeros where it is padded", "[products]") {
  for (ProductSize const& size : {ProductSize{1, 1, 1}, {7, 13, 11}, {24, 16, 64}, {3, 50, 2}})
    CHECK(wrong_elements(size, [](Index l) { return l; }, size.k) == 0);
  ProductSize const size{4, 5, 6};
  ExactMatrices const matrices(size);
  CHECK(matrices.value(Operand::a, 4, 0) == 0);
  CHECK(matrices.value(Operand::a, 0, 6) == 0);
  CHECK(matrices.value(Operand::b, 6, 0) == 0);
  CHECK(matrices.value(Operand::b, 0, 5) == 0);
  CHECK(matrices.product(4, 0) == 0);
  CHECK(matrices.product(0, 5) == 0);
}

TEST_CASE("blocks that are swapped, missing or there twice give another product", "[products]") {
  for (Index const block : {1, 3, 8, 11, 13, 16, 99, 128}) {
    ProductSize const size{32, 32, 4 * block};
    INFO(block);
    auto const swapped = [&](Index l) { return l < 2 * block ? (l + block) % (2 * block) : l; };
    auto const twice = [&](Index l) { return l < 2 * block ? l % block : l; };
    Index const least = block == 1 ? 100 : 400; // of 1024
    CHECK(wrong_elements(size, swapped, size.k) > least);
    CHECK(wrong_elements(size, twice, size.k) > least);
    CHECK(wrong_elements(size, [](Index l) { return l; }, 3 * block) > least);
  }
}

TEST_CASE("values are small whole numbers, and the inner extent is limited", "[products]") {
  ExactMatrices const matrices({100, 100, 100});
  for (Operand const operand : {Operand::a, Operand::b})
    for (Index i = 0; i < 100; ++i)
      for (Index j = 0; j < 100; ++j) {
        float const value = matrices.value(operand, i, j);
        CHECK((value == std::round(value) && std::abs(value) <= 3));
      }
  CHECK_THROWS_AS(ExactMatrices({1, 1, ExactMatrices::most_inner + 1}), InputError);
}
