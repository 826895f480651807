// The lecture on named models against the published digits and against closed forms that are written down here once
// more.

#include "lectures/taught_models.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include <algorithm>
#include <array>
#include <cmath>

using namespace trainstone;
using Catch::Matchers::WithinAbs;
using Catch::Matchers::WithinRel;

namespace {

ModelRow const& row_of(TaughtModels const& lecture, std::string_view name) {
  return *std::ranges::find(lecture.models, name, &ModelRow::name);
}

/// V h + s h + L (12 h^2 + 13 h) + 2 h
std::int64_t parameters(std::int64_t layers, std::int64_t h, std::int64_t s, std::int64_t vocab) {
  return vocab * h + s * h + layers * (12 * h * h + 13 * h) + 2 * h;
}

} // namespace

TEST_CASE("named models have the counts of their shapes", "[lecture]") {
  TaughtModels const lecture = compare_taught_models();
  CHECK(lecture.models.size() == 8);
  auto const computed = [&](std::string_view name) { return row_of(lecture, name).computed; };
  CHECK(computed("gpt2") == 124439808);
  CHECK(computed("gpt2-medium") == 354823168);
  CHECK(computed("gpt2-large") == 774030080);
  CHECK(computed("gpt2-xl") == 1557611200);
  CHECK(computed("bert-large") == parameters(24, 1024, 512, 30522));
  CHECK(computed("turing-nlg") == parameters(78, 4256, 1024, 50257));
  CHECK(computed("gpt3-6.7b") == parameters(32, 4096, 2048, 50257));
  CHECK(computed("gpt3-175b") == parameters(96, 12288, 2048, 50257));
  // names are rounded to two or three digits; BERT's and GPT-2 XL's are 4 % short
  for (ModelRow const& row : lecture.models) {
    INFO(row.name);
    CHECK_THAT(row.nominal, WithinRel(static_cast<double>(row.computed), 0.045));
  }
}

TEST_CASE("computation and memory of the four taught models are the published ones", "[lecture]") {
  TaughtModels const lecture = compare_taught_models();
  struct Taught {
    std::string_view name;
    double billions, computation, gigabytes;
  };
  for (Taught const& taught : {Taught{"bert-large", 0.32, 1, 5.12}, Taught{"gpt2-xl", 1.5, 4.7, 24},
                               Taught{"turing-nlg", 17.2, 54, 275}, Taught{"gpt3-175b", 175, 547, 2800}}) {
    INFO(taught.name);
    ModelRow const& row = row_of(lecture, taught.name);
    REQUIRE(row.taught.has_value());
    CHECK(row.nominal == taught.billions * 1e9);
    CHECK(row.taught->computation == taught.computation);
    CHECK(row.taught->gigabytes == taught.gigabytes);
    // what is printed is the quotient of nominal sizes and 16 bytes of each parameter, to two or three digits
    CHECK_THAT(row.nominal / 0.32e9, WithinAbs(taught.computation, taught.computation < 10 ? 0.05 : 0.5));
    CHECK_THAT(16 * row.nominal / 1e9, WithinAbs(taught.gigabytes, 0.5));
    CHECK(row.exact_bytes_16 == 16 * row.computed);
    CHECK(row.exact_bytes_20 == 20 * row.computed);
  }
  CHECK(std::ranges::count_if(lecture.models, [](ModelRow const& row) { return row.taught.has_value(); }) == 4);
}

TEST_CASE("activations of GPT-3 are the closed forms of a block times its layers", "[lecture]") {
  constexpr double s = 2048, h = 12288, a = 96, layers = 96, sh = s * h, ass = a * s * s;
  // statistics in fp32: mean and rstd of two norms per row; flash attention one number per row and head
  constexpr std::array<double, 6> blocks{
      34 * sh + 5 * ass,         34 * sh, 2 * sh, 34 * sh + 3 * ass + 16 * s, 32 * sh + 2 * ass + 16 * s,
      32 * sh + (16 + 4 * a) * s};
  // embedded, lnf, branch, d_stream, 3 of d_qkv, 4 of d_fc; logits; mean, rstd and loss of each row
  constexpr double outside = 2 * (11 * sh + 50304 * s) + 12 * s;
  std::vector<ActivationRow> const rows = compare_taught_models().activations;
  REQUIRE(rows.size() == 7);
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    INFO(rows[i].kind);
    CHECK(rows[i].sample == layers * blocks[i]); // all tensors are multiples of an arena's 64 bytes
    CHECK_THAT(rows[i].batch, WithinRel(layers * blocks[i] * 1562.5, 1e-15));
  }
  CHECK(rows[6].sample == outside);
}

TEST_CASE("exact computation is that of matrix products and attention per token", "[lecture]") {
  auto const flops = [](double layers, double h, double s, double vocab) {
    return 72 * layers * h * h + 6 * vocab * h + 12 * layers * s * h;
  };
  TaughtModels const lecture = compare_taught_models();
  double const bert = flops(24, 1024, 512, 30522);
  CHECK_THAT(row_of(lecture, "gpt3-175b").exact_computation, WithinRel(flops(96, 12288, 2048, 50257) / bert, 1e-14));
  CHECK_THAT(row_of(lecture, "gpt2-xl").exact_computation, WithinRel(flops(48, 1600, 1024, 50257) / bert, 1e-14));
  CHECK(row_of(lecture, "bert-large").exact_computation == 1);
}

TEST_CASE("the state of GPT-3 is 700 + 700 + 700 + 350 + 350 GB", "[lecture]") {
  TaughtModels const lecture = compare_taught_models();
  std::vector<double> taught;
  std::int64_t exact = 0;
  for (StateRow const& row : lecture.states) {
    taught.push_back(row.taught / 1e9);
    exact += row.exact;
  }
  CHECK(taught == std::vector<double>{700, 700, 700, 350, 350});
  CHECK(exact == 16 * parameters(96, 12288, 2048, 50257));
}

TEST_CASE("a card holds what is at most its size, in the unit in which it is counted", "[lecture]") {
  using Cards = std::vector<int>;
  CHECK(cards_that_hold(16e9, gigabyte) == Cards{16, 32, 40, 80});
  CHECK(cards_that_hold(16e9 + 1, gigabyte) == Cards{32, 40, 80});
  CHECK(cards_that_hold(16e9 + 1, gibibyte) == Cards{16, 32, 40, 80});
  CHECK(cards_that_hold(16 * gibibyte + 1, gibibyte) == Cards{32, 40, 80});
  CHECK(cards_that_hold(80e9 + 1, gigabyte).empty());
}
