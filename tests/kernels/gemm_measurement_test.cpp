#include "kernels/measurement/gemm_measurement.hpp"

#include "core/counters.hpp"
#include "core/error.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

using namespace trainstone;

namespace {

GemmShape const forward{37, 41, 43, Transpose::no, Transpose::yes};
GemmShape const narrow{37, 41, 43, Transpose::yes, Transpose::no, Write::add, Storage::bf16, Storage::fp32};

} // namespace

TEST_CASE("every product gets the name of a provider that was built and keeps fp32, and no work is counted",
          "[gemm][measurement]") {
  std::uint64_t const launches = counters().launches[Phase::gemm];
  auto const fastest = measure_fastest_gemms(ExecutionSpace(), {forward, narrow});
  CHECK(counters().launches[Phase::gemm] == launches);
  REQUIRE(fastest.size() == 2);
  for (GemmShape const& shape : {forward, narrow}) {
    GemmMethod const method = parse_gemm_method(fastest.at(to_string(shape)));
    CHECK(std::ranges::count(built_gemm_providers(), method.provider) == 1);
    CHECK(!rounds_fp32(method.provider));
    CHECK(method.variant < gemm_variants(method.provider, shape));
  }
  CHECK(shapes_to_measure({forward, narrow}, fastest).empty());
}

TEST_CASE("what was not measured, or by a provider that was not built, is to be measured", "[gemm][measurement]") {
  std::string const automatic(to_string(resolve_gemm_provider(GemmProvider::automatic)));
  CHECK(shapes_to_measure({forward, narrow}, {{to_string(forward), automatic}}) == std::set{narrow});
  CHECK(shapes_to_measure({forward}, {{to_string(forward), "cublaslt-tf32"}}) == std::set{forward});
  CHECK(shapes_to_measure({forward}, {{to_string(forward), "no such"}}) == std::set{forward});
  for (GemmProvider const provider : built_gemm_providers()) {
    if (rounds_fp32(provider)) continue;
    int const variants = gemm_variants(provider, forward);
    GemmMethod const last(provider, variants - 1), beyond(provider, variants);
    CHECK(shapes_to_measure({forward}, {{to_string(forward), to_string(last)}}).empty());
    CHECK(shapes_to_measure({forward}, {{to_string(forward), to_string(beyond)}}) == std::set{forward});
  }
}

TEST_CASE("the candidates of a product are all variants of all providers that keep fp32", "[gemm][measurement]") {
  for (GemmShape const& shape : {forward, narrow}) {
    std::size_t count = 0;
    for (GemmProvider const provider : built_gemm_providers())
      if (!rounds_fp32(provider)) count += static_cast<std::size_t>(gemm_variants(provider, shape));
    auto const candidates = gemm_candidates(shape);
    CHECK(candidates.size() == count);
    CHECK(std::set(candidates.begin(), candidates.end()).size() == count);
    CHECK(candidates.front() == GemmMethod(resolve_gemm_provider(GemmProvider::automatic)));
  }
}

TEST_CASE("the fastest variant is the one with the best of two rates, whatever disturbs one turn",
          "[gemm][measurement]") {
  GemmMethod const first(GemmProvider::cublaslt), second(GemmProvider::cublaslt, 1), third(GemmProvider::cublaslt, 2),
      other(GemmProvider::kokkos);
  std::vector const candidates{first, second, third, other};
  std::vector<GemmMethod> asked;
  std::map<GemmMethod, std::vector<double>> rates{{first, {3, 4}}, {second, {1, 6}}, {third, {5, 2}}, {other, {6, 1}}};
  auto const rate = [&](GemmMethod const& method, GemmShape const& shape) {
    CHECK(shape == forward);
    auto const turn = static_cast<std::size_t>(std::ranges::count(asked, method));
    asked.push_back(method);
    return rates.at(method).at(turn);
  };
  CHECK(fastest_gemm(candidates, forward, rate) == second); // and not `other`, which is as fast and comes later
  CHECK(asked == std::vector{first, second, third, other, other, third, second, first});
  asked.clear();
  rates[third] = {7, 0};
  CHECK(fastest_gemm(candidates, forward, rate) == third);
  CHECK_THROWS_AS(fastest_gemm({}, forward, rate), Error);
}

TEST_CASE("a kept name leads back to the variant that was measured", "[gemm][measurement]") {
  GemmShape biased = forward;
  biased.epilogue = EpilogueKind::bias;
  std::map<std::string, std::string> const kept{{to_string(forward), "kokkos#3"}, {to_string(biased), "kokkos"}};
  GemmChoice const choice = make_gemm_choice(kept, {forward, biased});
  CHECK(choice(forward) == GemmMethod(GemmProvider::kokkos, 3));
  CHECK(choice(biased) == GemmMethod(GemmProvider::kokkos));
  CHECK(choice.providers() == std::vector{GemmProvider::kokkos});
}

TEST_CASE("a choice takes the fastest provider of a product, and the usual one where none was measured",
          "[gemm][measurement]") {
  std::map<std::string, std::string> const fastest{{to_string(forward), "kokkos"}};
  GemmChoice const choice = make_gemm_choice(fastest, {forward, narrow});
  CHECK(choice(forward) == GemmProvider::kokkos);
  CHECK(choice(narrow) == resolve_gemm_provider(GemmProvider::automatic));
  CHECK(make_gemm_choice(fastest, {forward}).providers() == std::vector{GemmProvider::kokkos});
}
