// What is done with a product besides: biases, GELU and their gradients, for every built provider and storage type
// against fp64 loops.

#include "core/counters.hpp"
#include "core/error.hpp"
#include "core/memory.hpp"
#include "kernels/gemm/gemm.hpp"
#include "kernels/reference/reference.hpp"
#include "support/compare.hpp"
#include "support/views.hpp"

#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <cmath>

using namespace trainstone;
using namespace trainstone::test;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

namespace {

/// A product op(A) op(B) of numbers in (-1, 1] with a Gemm and its scratch.
template <class T, class Output>
struct Product {
  Product(GemmProvider wanted, GemmShape const& form)
      : shape(form),
        provider(wanted),
        a(stored<T>(random_values(form.m * form.k, 1, -1, 1))),
        b(stored<T>(random_values(form.k * form.n, 2, -1, 1))),
        c(stored<Output>(random_values(form.m * form.n, 3, -1, 1))),
        scratch(ledger, MemoryCategory::buffers, "scratch", gemm_scratch_bytes(wanted, form)),
        gemm(wanted, scratch.bytes()),
        exact(c.values().size()) {
    if (form.mode == Write::add) exact = widened(c.values());
    reference::gemm({form.m, form.n, form.k, form.a == Transpose::yes, form.b == Transpose::yes}, widened(a.values()),
                    widened(b.values()), exact);
  }

  /// Returns how many kernels that took.
  std::uint64_t compute(Epilogue const& epilogue) {
    bool const swap_a = shape.a == Transpose::yes, swap_b = shape.b == Transpose::yes;
    counters() = {};
    gemm(exec, shape.a, a.matrix(swap_a ? shape.k : shape.m, swap_a ? shape.m : shape.k), shape.b,
         b.matrix(swap_b ? shape.n : shape.k, swap_b ? shape.k : shape.n), c.matrix(shape.m, shape.n), shape.mode,
         epilogue);
    return total_launches(counters());
  }

  std::uint64_t launches() const { return static_cast<std::uint64_t>(gemm_launches(provider, shape)); }

  /// k + 1 terms of at most 1, added in any order with a rounding each.
  double error() const { return static_cast<double>((shape.k + 1) * (shape.k + 1)) * roundoff; }

  ExecutionSpace exec;
  GemmShape shape;
  GemmProvider provider;
  DeviceTensor<T> a, b;
  DeviceTensor<Output> c;
  MemoryLedger ledger;
  Allocation scratch;
  Gemm gemm;
  std::vector<double> exact;
};

/// Stored twice: as a product, and with what was done to it, whose rounding in fp32 is the smaller part.
template <class T>
auto stored_twice_within(double error, double growth = 1) {
  return [=](double value) {
    double const largest = std::abs(value) + 2; // of the product, where a bias of at most 1 was added
    return growth * (error + storing_error<T>(largest)) + storing_error<T>(std::abs(value) + error) +
           8 * roundoff * largest;
  };
}

/// To the bounds of these tests.
template <class T>
bool can_compute(GemmProvider provider) {
  return !(storage_of<T>() == Storage::fp32 && rounds_fp32(provider));
}

GemmShape const extents[] = {{13, 37, 29}, {1, 1, 1}, {64, 128, 32}, {7, 3, 0}};

} // namespace

TEMPLATE_LIST_TEST_CASE("a product with a bias, and the GELU of it", "[gemm][epilogue]", StorageTypes) {
  using T = TestType;
  GemmProvider const provider = GENERATE(from_range(built_gemm_providers()));
  if (!can_compute<T>(provider)) return;
  EpilogueKind const kind = GENERATE(EpilogueKind::bias, EpilogueKind::bias_gelu);
  for (GemmShape shape : extents) {
    shape.b = Transpose::yes;
    shape.inputs = shape.output = storage_of<T>();
    shape.epilogue = kind;
    INFO(to_string(provider) << ", m " << shape.m << " n " << shape.n << " k " << shape.k);
    Product<T, T> product(provider, shape);
    DeviceTensor<T> const bias(stored<T>(random_values(shape.n, 4, -1, 1)));
    DeviceTensor<T> const pre(shape.m * shape.n, from_float<T>(7));
    std::vector<double> biased = product.exact;
    reference::add_bias(widened(bias.values()), biased);
    auto const close = stored_twice_within<T>(product.error());
    if (kind == EpilogueKind::bias) {
      CHECK(product.compute(Epilogue::add_bias(bias.vector())) == product.launches());
      CHECK(mismatches(std::span<double const>(widened(product.c.values())), std::span<double const>(biased), close) ==
            "");
      continue;
    }
    CHECK(product.compute(Epilogue::gelu(bias.vector(), pre.matrix(shape.m, shape.n))) == product.launches());
    CHECK(mismatches(std::span<double const>(widened(pre.values())), std::span<double const>(biased), close) == "");
    std::vector<double> wanted;
    for (double const value : biased) wanted.push_back(reference::gelu(value));
    // the GELU's slope is at most 1.13, and it is taken of a `pre` that may have been stored; |gelu(x)| may be small
    // where |x| is not: up to 3, beyond which the slope is 0 or 1
    auto const bound = [&](double value) {
      return 1.13 * close(std::max(std::abs(value), 3.0)) + storing_error<T>(std::abs(value) + 0.01);
    };
    CHECK(mismatches(std::span<double const>(widened(product.c.values())), std::span<double const>(wanted), bound) ==
          "");
  }
}

TEMPLATE_LIST_TEST_CASE("a product through the gradient of a GELU", "[gemm][epilogue]", StorageTypes) {
  using T = TestType;
  GemmProvider const provider = GENERATE(from_range(built_gemm_providers()));
  if (!can_compute<T>(provider)) return;
  for (GemmShape shape : extents) {
    shape.inputs = shape.output = storage_of<T>();
    shape.epilogue = EpilogueKind::gelu_gradient;
    INFO(to_string(provider) << ", m " << shape.m << " n " << shape.n << " k " << shape.k);
    Product<T, T> product(provider, shape);
    DeviceTensor<T> const pre(stored<T>(random_values(shape.m * shape.n, 5, -3, 3)));
    std::vector<double> wanted = product.exact;
    reference::gelu_backward(widened(pre.values()), wanted);
    CHECK(product.compute(Epilogue::gelu_gradient(pre.matrix(shape.m, shape.n))) == product.launches());
    // the product is stored before it is multiplied with a slope of at most 1.13, itself off by some roundings in fp32;
    // slopes may be near 0 where the product is not: it is smaller than k
    double const largest = static_cast<double>(shape.k);
    auto const bound = [&](double value) {
      return 1.13 * (product.error() + storing_error<T>(largest)) + 16 * roundoff * largest +
             storing_error<T>(std::abs(value) + product.error());
    };
    CHECK(mismatches(std::span<double const>(widened(product.c.values())), std::span<double const>(wanted), bound) ==
          "");
  }
}

TEMPLATE_LIST_TEST_CASE("a weight's gradient with that of the bias, overwritten and added to", "[gemm][epilogue]",
                        StorageAndGradientTypes) {
  using T = typename TestType::Storage;
  using Gradient = typename TestType::Gradient;
  GemmProvider const provider = GENERATE(from_range(built_gemm_providers()));
  if (!can_compute<T>(provider)) return;
  Write const mode = GENERATE(Write::overwrite, Write::add);
  for (GemmShape shape : extents) {
    if (shape.k == 0) continue; // no positions
    shape.a = Transpose::yes;
    shape.mode = mode;
    shape.inputs = storage_of<T>();
    shape.output = storage_of<Gradient>();
    shape.epilogue = EpilogueKind::bias_gradient;
    INFO(to_string(provider) << ", m " << shape.m << " n " << shape.n << " k " << shape.k);
    Product<T, Gradient> product(provider, shape);
    DeviceTensor<Gradient> const gradient(stored<Gradient>(random_values(shape.m, 6, -1, 1)));
    std::vector<double> sums(static_cast<std::size_t>(shape.m));
    if (mode == Write::add) sums = widened(gradient.values());
    reference::bias_backward(widened(product.a.values()), sums);
    CHECK(product.compute(Epilogue::gradient_of_bias(gradient.vector())) == product.launches());
    auto const bound = stored_within<Gradient>(product.error());
    CHECK(mismatches(std::span<double const>(widened(gradient.values())), std::span<double const>(sums), bound) == "");
    bool const twice = mode == Write::add && rounds_before_adding(provider); // C held numbers of at most 1
    auto const close = [&](double value) {
      return twice ? added_after_storing_within<Gradient>(product.error(), 1.0)(value) : bound(value);
    };
    CHECK(mismatches(std::span<double const>(widened(product.c.values())), std::span<double const>(product.exact),
                     close) == "");
  }
}

TEST_CASE("an epilogue that does not fit its product is refused with both shapes", "[gemm][epilogue]") {
  ExecutionSpace const exec;
  Gemm gemm(GemmProvider::kokkos);
  DeviceTensor<float> const a(6, 1.0F), b(15, 1.0F), c(10, 1.0F), five(5, 1.0F), two(2, 1.0F);
  auto const product = [&](Transpose transpose_a, Write mode, Epilogue const& epilogue) {
    bool const swap = transpose_a == Transpose::yes;
    gemm(exec, transpose_a, a.matrix(swap ? 3 : 2, swap ? 2 : 3), Transpose::no, b.matrix(3, 5), c.matrix(2, 5), mode,
         epilogue);
  };
  Epilogue const short_bias = Epilogue::add_bias(two.vector()), bias = Epilogue::add_bias(five.vector());
  CHECK_THROWS_MATCHES(product(Transpose::no, Write::overwrite, short_bias), Error,
                       MessageMatches(ContainsSubstring("the bias has 2 elements of fp32, not 5")));
  CHECK_THROWS_MATCHES(product(Transpose::no, Write::add, bias), Error,
                       MessageMatches(ContainsSubstring("its epilogue overwrites C")));
  CHECK_THROWS_MATCHES(product(Transpose::no, Write::overwrite, Epilogue::gelu(five.vector(), c.matrix(5, 2))), Error,
                       MessageMatches(ContainsSubstring("what the GELU is taken of is (5, 2) of fp32")));
  CHECK_THROWS_MATCHES(product(Transpose::no, Write::overwrite, Epilogue::gradient_of_bias(two.vector())), Error,
                       MessageMatches(ContainsSubstring("sums the rows of a transposed A")));
  CHECK_THROWS_MATCHES(product(Transpose::yes, Write::overwrite, Epilogue::gradient_of_bias(five.vector())), Error,
                       MessageMatches(ContainsSubstring("the bias' gradient has 5 elements of fp32, not 2")));
  CHECK_NOTHROW(product(Transpose::yes, Write::add, Epilogue::gradient_of_bias(two.vector())));
}
