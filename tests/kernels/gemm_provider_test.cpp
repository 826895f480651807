// Which providers there are, and what a product refuses before it computes anything.

#include "kernels/gemm/gemm.hpp"

#include "core/error.hpp"
#include "core/launch.hpp"
#include "kernels/common/config.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

using namespace trainstone;
using Catch::Matchers::ContainsSubstring;
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

TEST_CASE("how a provider computes is told, and a provider of fp32 products alone converts 16 bits to it", "[gemm]") {
  GemmProvider const automatic = resolve_gemm_provider(GemmProvider::automatic);
  for (Storage const inputs : {Storage::bf16, Storage::fp16}) {
    CHECK(describe_gemm(automatic, inputs).starts_with(fmt::format("{} {}", to_string(automatic), to_string(inputs))));
    CHECK(describe_gemm(GemmProvider::kokkos, inputs) == fmt::format("kokkos {}", to_string(inputs)));
  }
  CHECK(describe_gemm(GemmProvider::automatic, Storage::fp32) == to_string(built_gemm_providers().front()));
  GemmShape const narrow{7, 5, 3, Transpose::no, Transpose::no, Write::overwrite, Storage::bf16, Storage::bf16};
  GemmShape narrow_into_wide = narrow, adding = narrow;
  narrow_into_wide.output = Storage::fp32;
  adding.mode = Write::add;
  for (GemmProvider const provider : {GemmProvider::blas, GemmProvider::kokkos_kernels}) {
    if (std::ranges::count(built_gemm_providers(), provider) == 0) continue;
    CHECK(describe_gemm(provider, Storage::bf16) == fmt::format("{} bf16 as fp32", to_string(provider)));
    CHECK(gemm_scratch_bytes(provider, narrow) == 128 + 64 + 192); // A of 84 bytes, B of 60, C of 140
    CHECK(gemm_scratch_bytes(provider, narrow_into_wide) == 128 + 64);
    CHECK(gemm_launches(provider, narrow) == 4);
    CHECK(gemm_launches(provider, narrow_into_wide) == 3);
    CHECK(gemm_launches(provider, adding) == 5);
  }
}

TEST_CASE("a choice names a provider by shape, whatever the epilogue, and the usual one for others", "[gemm]") {
  GemmProvider const usual = built_gemm_providers().front();
  GemmShape const named{7, 5, 3, Transpose::no, Transpose::yes}, other{7, 5, 2, Transpose::no, Transpose::yes};
  GemmShape with_bias = named;
  with_bias.epilogue = EpilogueKind::bias;
  for (GemmShape const& key : {named, with_bias}) {
    GemmChoice const choice(GemmProvider::automatic, {{key, GemmProvider::kokkos}});
    CHECK(choice(named) == GemmProvider::kokkos);
    CHECK(choice(with_bias) == GemmProvider::kokkos);
    CHECK(choice(other) == usual);
    CHECK(choice.usual() == usual);
    CHECK(choice.providers() ==
          (usual == GemmProvider::kokkos ? std::vector{usual} : std::vector{usual, GemmProvider::kokkos}));
  }
  CHECK(GemmChoice(GemmProvider::kokkos).providers() == std::vector{GemmProvider::kokkos});
  CHECK(describe_gemm(GemmChoice(GemmProvider::kokkos), Storage::bf16) == "kokkos bf16");
}

TEST_CASE("a Gemm computes every product by whom the choice names", "[gemm]") {
  if (built_gemm_providers().front() == GemmProvider::kokkos) SKIP("there is one provider");
  ExecutionSpace const exec;
  GemmShape const named{2, 2, 2}, other{2, 2, 1};
  std::uint64_t const bytes =
      std::max(gemm_scratch_bytes(GemmProvider::automatic, named), gemm_scratch_bytes(GemmProvider::automatic, other));
  Kokkos::View<std::byte*, MemorySpace> const scratch("test", bytes);
  Gemm gemm(GemmChoice(GemmProvider::automatic, {{named, GemmProvider::kokkos}}),
            Vector<std::byte>(scratch.data(), bytes));
  Kokkos::View<float*, MemorySpace> const memory("test", 12);
  std::vector<std::string> labels;
  DelayPoint::Scoped const recording(delay_point(), [&](char const* label) { labels.emplace_back(label); });
  for (Index const k : {Index{2}, Index{1}})
    gemm(exec, Transpose::no, Matrix<float>(memory.data(), 2, k), Transpose::no, Matrix<float>(memory.data() + 4, k, 2),
         Matrix<float>(memory.data() + 8, 2, 2), Write::overwrite);
  REQUIRE(labels.size() == 2);
  CHECK(labels[0] == "trainstone::gemm");
  CHECK(labels[1] != "trainstone::gemm");
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
  CHECK(Gemm(GemmProvider::automatic).choice().providers() == std::vector{built.front()});
  CHECK(std::ranges::count(built, GemmProvider::kokkos) == 1);
}
