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
#include <set>
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

TEST_CASE("a choice names a method by shape and epilogue, and the usual provider for others", "[gemm]") {
  GemmProvider const usual = built_gemm_providers().front();
  GemmShape const named{7, 5, 3, Transpose::no, Transpose::yes}, other{7, 5, 2, Transpose::no, Transpose::yes};
  GemmShape with_bias = named;
  with_bias.epilogue = EpilogueKind::bias;
  GemmMethod const method(GemmProvider::kokkos, 2);
  for (GemmShape const& key : {named, with_bias}) {
    GemmChoice const choice(GemmProvider::automatic, {{key, method}});
    CHECK(choice(named) == (key == named ? method : GemmMethod(usual)));
    CHECK(choice(with_bias) == (key == with_bias ? method : GemmMethod(usual)));
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

TEST_CASE("a provider is asked for the variant that the choice names of the product with its epilogue", "[gemm]") {
  GemmShape const plain{2, 3, 2}, other{2, 3, 1};
  GemmShape biased = plain; // the bias is a kernel of its own after the third variant's product
  biased.epilogue = EpilogueKind::bias;
  std::vector<int> asked;
  auto const record = [&](ExecutionSpace const&, GemmShape const& shape, int variant, void const*, void const*, void*,
                          Epilogue const& epilogue, Vector<std::byte>) {
    CHECK(shape.epilogue == EpilogueKind::none);
    CHECK(epilogue.kind == EpilogueKind::none);
    asked.push_back(variant);
  };
  ExecutionSpace const exec;
  Gemm gemm(GemmChoice(GemmProvider::kokkos, {{plain, {GemmProvider::kokkos, 5}}, {biased, {GemmProvider::kokkos, 3}}}),
            {}, {{GemmProvider::kokkos, record}});
  Kokkos::View<float*, MemorySpace> const memory("test", 20);
  Vector<float const> const bias(memory.data() + 16, 3);
  auto const multiply = [&](GemmShape const& shape, Epilogue const& epilogue) {
    gemm(exec, Transpose::no, Matrix<float>(memory.data(), 2, static_cast<std::size_t>(shape.k)), Transpose::no,
         Matrix<float>(memory.data() + 4, static_cast<std::size_t>(shape.k), 3),
         Matrix<float>(memory.data() + 10, 2, 3), Write::overwrite, epilogue);
  };
  multiply(plain, {});
  multiply(biased, Epilogue::add_bias(bias));
  multiply(other, {});
  CHECK(asked == std::vector{5, 3, 0});
}

TEST_CASE("names of methods are read back, and what is no number of a variant is refused", "[gemm]") {
  for (GemmMethod const& method : {GemmMethod(GemmProvider::blas), GemmMethod(GemmProvider::cublaslt, 7)})
    CHECK(parse_gemm_method(to_string(method)) == method);
  CHECK(to_string(GemmMethod(GemmProvider::cublaslt, 7)) == "cublaslt#7");
  CHECK(to_string(GemmMethod(GemmProvider::cublaslt)) == "cublaslt");
  for (char const* const name :
       {"cublaslt#", "cublaslt#0", "cublaslt#-1", "cublaslt#1x", "cublaslt#99999999999", "mkl#1"})
    CHECK_THROWS_AS(parse_gemm_method(name), InputError);
}

TEST_CASE("the name of a shape tells its epilogue", "[gemm]") {
  std::set<std::string> names;
  GemmShape shape{7, 5, 3};
  for (EpilogueKind const kind : {EpilogueKind::none, EpilogueKind::bias, EpilogueKind::bias_gelu,
                                  EpilogueKind::gelu_gradient, EpilogueKind::bias_gradient}) {
    shape.epilogue = kind;
    names.insert(to_string(shape));
  }
  CHECK(names.size() == 5);
  CHECK(names.contains("C (7, 5) fp32 = A (7, 3) B (3, 5) fp32 with bias and GELU"));
}

TEST_CASE("versions name every provider that was built", "[gemm]") {
  std::string const versions = gemm_versions() + " ";
  for (GemmProvider const provider : built_gemm_providers()) {
    bool const alone = versions.find(fmt::format("{} ", to_string(provider))) != std::string::npos;
    bool const with_version = versions.find(fmt::format("{}=", to_string(provider))) != std::string::npos;
    CHECK(alone != with_version);
    CHECK(gemm_variants(provider, {7, 5, 0}) == 1);
  }
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
