// Which providers there are, and what a product refuses before it computes anything.

#include "kernels/gemm.hpp"

#include "core/error.hpp"
#include "kernels/config.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

using namespace trainstone;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::Matches;
using Catch::Matchers::MessageMatches;

namespace {

Matrix<float> no_data(Index rows, Index columns) {
  return Matrix<float>(nullptr, static_cast<std::size_t>(rows), static_cast<std::size_t>(columns));
}

} // namespace

TEST_CASE("extents that do not fit together are refused with all of them", "[gemm]") {
  ExecutionSpace const exec;
  Gemm gemm(GemmProvider::kokkos);
  auto const refuses = [&](Transpose a, Transpose b, Matrix<float> left, Matrix<float> right, Matrix<float> out) {
    CHECK_THROWS_MATCHES(gemm(exec, a, left, b, right, out, Write::overwrite), Error,
                         MessageMatches(ContainsSubstring("(2, 3)") && ContainsSubstring("into C (")));
  };
  refuses(Transpose::no, Transpose::no, no_data(2, 3), no_data(4, 5), no_data(2, 5));
  refuses(Transpose::no, Transpose::no, no_data(2, 3), no_data(3, 5), no_data(3, 5));
  refuses(Transpose::no, Transpose::no, no_data(2, 3), no_data(3, 5), no_data(2, 6));
  refuses(Transpose::yes, Transpose::no, no_data(2, 3), no_data(3, 5), no_data(3, 5));
  refuses(Transpose::no, Transpose::yes, no_data(2, 3), no_data(3, 5), no_data(2, 5));
}

TEST_CASE("types that do not fit together are refused with all of them", "[gemm]") {
  ExecutionSpace const exec;
  Gemm gemm(GemmProvider::kokkos);
  Matrix<bf16> const narrow(nullptr, 2, 2);
  Matrix<fp16> const other(nullptr, 2, 2);
  auto const refuses = [&](ConstStoredMatrix a, ConstStoredMatrix b, StoredMatrix c, char const* types) {
    CHECK_THROWS_MATCHES(gemm(exec, Transpose::no, a, Transpose::no, b, c, Write::overwrite), Error,
                         MessageMatches(ContainsSubstring(types)));
  };
  refuses(narrow, no_data(2, 2), narrow, "A bf16 times B fp32 into C bf16");
  refuses(narrow, narrow, other, "A bf16 times B bf16 into C fp16");
  refuses(no_data(2, 2), no_data(2, 2), narrow, "A fp32 times B fp32 into C bf16");
}

TEST_CASE("a provider without products of 16 bits refuses them and names those that have them", "[gemm]") {
  for (Storage const inputs : {Storage::bf16, Storage::fp16}) {
    GemmProvider const automatic = resolve_gemm_provider(GemmProvider::automatic, inputs);
    CHECK(automatic != GemmProvider::kokkos_kernels);
    CHECK(describe_gemm(automatic, inputs).starts_with(fmt::format("{} {}", to_string(automatic), to_string(inputs))));
    CHECK(describe_gemm(GemmProvider::kokkos, inputs) == fmt::format("kokkos {}", to_string(inputs)));
  }
  CHECK(describe_gemm(GemmProvider::automatic, Storage::fp32) == to_string(built_gemm_providers().front()));
  if (std::ranges::count(built_gemm_providers(), GemmProvider::kokkos_kernels) == 0)
    SKIP("this build has no such provider");
  CHECK_THROWS_MATCHES(resolve_gemm_provider(GemmProvider::kokkos_kernels, Storage::bf16), InputError,
                       MessageMatches(Matches(".*no products of bf16 matrices; .*kokkos.* do")));
  Matrix<bf16> const narrow(nullptr, 2, 2);
  Gemm gemm(GemmProvider::kokkos_kernels);
  CHECK_THROWS_AS(gemm(ExecutionSpace(), Transpose::no, narrow, Transpose::no, narrow, narrow, Write::overwrite),
                  InputError);
}

TEST_CASE("provider names are read back, and what was not built is refused with what was", "[gemm]") {
  auto const built = built_gemm_providers();
  for (std::string_view const name : gemm_provider_names) {
    GemmProvider const provider = parse_gemm_provider(name);
    CHECK(to_string(provider) == name);
    if (provider == GemmProvider::automatic || std::ranges::count(built, provider) == 1) continue;
    CHECK_THROWS_MATCHES(resolve_gemm_provider(provider), InputError, MessageMatches(ContainsSubstring("it has ")));
  }
  CHECK_THROWS_MATCHES(parse_gemm_provider("mkl"), InputError, MessageMatches(ContainsSubstring("onednn")));
  CHECK(resolve_gemm_provider(GemmProvider::automatic) == built.front());
  CHECK(Gemm(GemmProvider::automatic).provider() == built.front());
  CHECK(std::ranges::count(built, GemmProvider::kokkos) == 1);
}
