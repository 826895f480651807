#include "kernels/measurement/gemm_measurement.hpp"

#include "core/counters.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
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
    GemmProvider const provider = parse_gemm_provider(fastest.at(to_string(shape)));
    CHECK(std::ranges::count(built_gemm_providers(), provider) == 1);
    CHECK(!rounds_fp32(provider));
  }
  CHECK(shapes_to_measure({forward, narrow}, fastest).empty());
}

TEST_CASE("what was not measured, or by a provider that was not built, is to be measured", "[gemm][measurement]") {
  std::string const automatic(to_string(resolve_gemm_provider(GemmProvider::automatic)));
  CHECK(shapes_to_measure({forward, narrow}, {{to_string(forward), automatic}}) == std::set{narrow});
  CHECK(shapes_to_measure({forward}, {{to_string(forward), "cublaslt-tf32"}}) == std::set{forward});
  CHECK(shapes_to_measure({forward}, {{to_string(forward), "no such"}}) == std::set{forward});
}

TEST_CASE("a choice takes the fastest provider of a product, and the usual one where none was measured",
          "[gemm][measurement]") {
  std::map<std::string, std::string> const fastest{{to_string(forward), "kokkos"}};
  GemmChoice const choice = make_gemm_choice(fastest, {forward, narrow});
  CHECK(choice(forward) == GemmProvider::kokkos);
  CHECK(choice(narrow) == resolve_gemm_provider(GemmProvider::automatic));
  CHECK(make_gemm_choice(fastest, {forward}).providers() == std::vector{GemmProvider::kokkos});
}
