// Every built provider and storage type against fp64 loops.

#include "kernels/gemm/gemm.hpp"

#include "core/error.hpp"
#include "core/host_copy.hpp"
#include "core/launch.hpp"
#include "core/memory.hpp"
#include "support/compare.hpp"
#include "support/gemm_problem.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

using namespace trainstone;
using namespace trainstone::test;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

TEST_CASE("products of whole numbers are exact, and rounded once, for all providers, types, transposes and modes",
          "[gemm]") {
  // one, odd, prime, around tile borders of the Kokkos kernel (66 to 264 x 64 x 768, 48 to 192 x 128 to 384 x 256, half
  // the depth where C has 16 bits, patches 6 x 16 or 32), 1024 columns and more
  auto const extents = {Extents{1, 1, 1}, {1, 17, 3},      {19, 1, 5},     {5, 7, 1},       {6, 32, 128},
                        {131, 127, 129},  {133, 129, 257}, {264, 33, 64},  {265, 640, 129}, {533, 17, 3},
                        {3, 1024, 9},     {7, 3072, 31},   {17, 2050, 13}, {67, 65, 769},   {13, 385, 257}};
  for (auto const [m, n, k] : extents) {
    for_each_form(m, n, k, [](GemmProvider provider, GemmShape const& shape) {
      GemmProblem const problem(shape);
      auto const outcomes = compute(provider, problem);
      CHECK(exact_mismatches(provider, outcomes[0].c, problem) == "");
      CHECK(outcomes[0].guard_intact);
    });
  }
}

TEST_CASE("only cuBLASLt is allowed to store a product before it adds it, and only to a C of 16 bits", "[gemm]") {
  GemmShape shape{7, 5, 3, Transpose::no, Transpose::no, Write::add, Storage::bf16, Storage::bf16};
  for (GemmProvider const provider :
       {GemmProvider::onednn, GemmProvider::blas, GemmProvider::kokkos_kernels, GemmProvider::kokkos})
    CHECK(!stores_twice(provider, shape));
  for (GemmProvider const provider : {GemmProvider::cublaslt, GemmProvider::cublaslt_tf32}) {
    CHECK(stores_twice(provider, shape));
    shape.output = Storage::fp32;
    CHECK(!stores_twice(provider, shape));
    shape.output = Storage::bf16;
    shape.mode = Write::overwrite;
    CHECK(!stores_twice(provider, shape));
    shape.mode = Write::add;
  }
}

TEST_CASE("the bound of two roundings holds where a product is stored before it is added, and that of one does not",
          "[gemm]") {
  for (Storage const storage : {Storage::bf16, Storage::fp16}) {
    GemmShape const shape{61, 67, 71, Transpose::no, Transpose::no, Write::add, storage, storage};
    GemmProblem const problem(shape);
    std::vector<double> const exact = expected(problem);
    std::vector<double> const sum = with_types(shape, [&]<class Input, class Output>() {
      std::vector<double> const added = test::widened(test::stored<Output>(problem.c));
      std::vector<float> stored_before;
      for (std::size_t i = 0; i < exact.size(); ++i)
        stored_before.push_back(to_float(from_float<Output>(static_cast<float>(exact[i] - added[i]))) +
                                static_cast<float>(added[i]));
      return test::widened(test::stored<Output>(stored_before));
    });
    std::span<double const> const found(sum), wanted(exact);
    CHECK(test::mismatches(found, wanted, storing_bound(GemmProvider::cublaslt, problem, 0)) == "");
    ErrorBound const once = storing_bound(GemmProvider::kokkos, problem, 0);
    bool is_beyond = false; // compared here: it is no error of a kernel
    for (std::size_t i = 0; i < sum.size(); ++i)
      is_beyond = is_beyond || std::abs(found[i] - wanted[i]) > once(wanted[i]);
    CHECK(is_beyond);
  }
}

TEST_CASE("products without elements or without terms leave C, or zero it", "[gemm]") {
  for (auto const [m, n, k] : {Extents{0, 5, 3}, {5, 0, 3}, {5, 3, 0}, {0, 0, 0}, {135, 130, 0}}) {
    for_each_form(m, n, k, [](GemmProvider provider, GemmShape const& shape) {
      CHECK(gemm_scratch_bytes(provider, shape) == 0);
      GemmProblem const problem(shape);
      CHECK(exact_mismatches(provider, compute(provider, problem)[0].c, problem) == "");
    });
  }
}

TEST_CASE("overwriting ignores what C held, even NaN", "[gemm]") {
  for (Index const n : {1, 37, 1024}) {
    for_each_form(29, n, 11, [](GemmProvider provider, GemmShape const& shape) {
      if (shape.mode == Write::add) return;
      GemmProblem problem(shape);
      std::ranges::fill(problem.c, std::numeric_limits<float>::quiet_NaN());
      CHECK(exact_mismatches(provider, compute(provider, problem)[0].c, problem) == "");
    });
  }
}

TEST_CASE("products are added up in fp32 throughout, whatever the inputs are stored in", "[gemm]") {
  // A sum of k + 1 terms of at most 1 in any order: at most k + 1 roundings, each of at most 2^-24 of a partial sum of
  // at most k + 1. A conversion to bf16 on the way (8 bits) would err by about sqrt(k) 2^-9 / 3 = 5e-3.
  Index const k = 61;
  double const bound = static_cast<double>((k + 1) * (k + 1)) * 0x1p-24; // 2.3e-4
  for (Index const n : {67, 1024}) {
    for_each_form(71, n, k, [&](GemmProvider provider, GemmShape const& shape) {
      if (rounds_fp32(provider) && shape.inputs == Storage::fp32) return;
      GemmProblem problem(shape);
      problem.scale(1.0f / 127, 1.0f / 127);
      auto const outcome = compute(provider, problem)[0].c;
      auto const wanted = expected(problem);
      CHECK(test::mismatches(std::span<double const>(outcome), std::span<double const>(wanted),
                             storing_bound(provider, problem, bound)) == "");
    });
  }
}

TEST_CASE("repeating a product gives the same bits", "[gemm]") {
  for_each_form(259, 263, 269, [](GemmProvider provider, GemmShape const& shape) {
    GemmProblem problem(shape);
    problem.scale(1.0f / 127, 1.0f / 127);
    auto const outcomes = compute(provider, problem, 3);
    for (Outcome const& outcome : outcomes) CHECK(outcome.c == outcomes[0].c);
  });
}

TEST_CASE("a product counts 2 m n k operations, one launch, and those of conversions to fp32", "[gemm]") {
  for_each_form(13, 37, 101, [](GemmProvider provider, GemmShape const& shape) {
    counters() = {};
    compute(provider, GemmProblem(shape));
    bool const converted = describe_gemm(provider, shape.inputs).ends_with("as fp32");
    bool const add = shape.mode == Write::add;
    int const conversions_of_c = shape.output == Storage::fp32 ? 0 : add ? 2 : 1;
    CHECK(total_launches(counters()) == static_cast<unsigned>(gemm_launches(provider, shape)));
    CHECK(total_launches(counters()) == (converted ? 3u + static_cast<unsigned>(conversions_of_c) : 1u));
    CHECK(counters().flops[Phase::gemm] == 2u * 13u * 37u * 101u);
    CHECK(model_flops(counters()) == shape.flops());
    std::uint64_t const inputs = converted ? 4 : bytes_per_value(shape.inputs),
                        output = converted ? 4 : bytes_per_value(shape.output);
    CHECK(counters().bytes[Phase::gemm] == inputs * (13u * 101u + 101u * 37u) + output * (add ? 2u : 1u) * 13u * 37u);
    if (!converted) CHECK(counters().bytes[Phase::gemm] == shape.bytes());
  });
}

TEST_CASE("one scratch of the largest size serves products of all shapes", "[gemm]") {
  ExecutionSpace const exec;
  GemmShape const small{31, 29, 37, Transpose::no, Transpose::yes, Write::overwrite};
  GemmShape const large{61, 300, 300, Transpose::yes, Transpose::no, Write::add};
  for (GemmProvider const provider : built_gemm_providers()) {
    MemoryLedger ledger;
    std::uint64_t const bytes = std::max(gemm_scratch_bytes(provider, small), gemm_scratch_bytes(provider, large));
    Allocation const scratch(ledger, MemoryCategory::buffers, "scratch", bytes);
    Allocation const data(ledger, MemoryCategory::buffers, "data", 3 * 300 * 300 * sizeof(float));
    Gemm gemm(provider, scratch.bytes());
    for (int repeat = 0; repeat < 2; ++repeat) {
      for (GemmShape const& s : {small, large}) {
        Arena arena(data.bytes());
        auto const a = s.a == Transpose::no ? arena.matrix<float>("A", s.m, s.k) : arena.matrix<float>("A", s.k, s.m);
        auto const b = s.b == Transpose::no ? arena.matrix<float>("B", s.k, s.n) : arena.matrix<float>("B", s.n, s.k);
        auto const c = arena.matrix<float>("C", s.m, s.n);
        for (auto const& matrix : {a, b, c}) Kokkos::deep_copy(exec, matrix, 1.0f);
        gemm(exec, s.a, a, s.b, b, c, s.mode);
        auto const result = copy_to_host(exec, Vector<float>(c.data(), c.size()), "test");
        auto const wanted = static_cast<float>(s.k + (s.mode == Write::add ? 1 : 0));
        CHECK(std::ranges::count(result, wanted) == static_cast<std::ptrdiff_t>(result.size()));
      }
    }
  }
}

TEST_CASE("too small a scratch is refused", "[gemm]") {
  GemmShape const shape{64, 64, 64, Transpose::yes, Transpose::yes, Write::add};
  ExecutionSpace const exec;
  for (GemmProvider const provider : built_gemm_providers()) {
    if (gemm_scratch_bytes(provider, shape) == 0) continue;
    Gemm gemm(provider);
    Matrix<float> const none(nullptr, 64, 64);
    CHECK_THROWS_MATCHES(gemm(exec, shape.a, none, shape.b, none, none, shape.mode), Error,
                         MessageMatches(ContainsSubstring("was given 0")));
  }
  for_each_form(17, 19, 23, [&](GemmProvider provider, GemmShape const& form) {
    std::uint64_t const bytes = gemm_scratch_bytes(provider, form);
    if (bytes == 0) return;
    Kokkos::View<std::byte*, MemorySpace> const short_by_one("test", bytes - 1);
    Gemm gemm(provider, Vector<std::byte>(short_by_one.data(), bytes - 1));
    with_types(form, [&]<class Input, class Output>() {
      Matrix<Input> const none(nullptr, 17, 23), right(nullptr, 23, 19);
      if (form.a == Transpose::yes || form.b == Transpose::yes) return;
      CHECK_THROWS_AS(gemm(exec, form.a, none, form.b, right, Matrix<Output>(nullptr, 17, 19), form.mode), Error);
    });
  });
}
