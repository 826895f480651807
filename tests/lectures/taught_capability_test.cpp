// The lecture on capability against closed forms that are written down here once more.

#include "lectures/taught_capability.hpp"

#include "core/error.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include <algorithm>
#include <cmath>

using namespace trainstone;
using Catch::Matchers::WithinRel;

namespace {

GptConfig const gpt3 = *find_preset("gpt3-175b");
constexpr std::int64_t h = 12288;

DegreeRow const& row_of(TaughtCapability const& lecture, std::string_view name) {
  return *std::ranges::find(lecture.models, name, &DegreeRow::name);
}

} // namespace

namespace {

/// 2 B parameters on the largest rank: of h^2 and h, a stage has `squares` and `lines`. The positive root, rounded
/// down.
double widest(double squares, double lines) {
  return std::floor((std::sqrt(lines * lines + 4 * squares * 2e9) - lines) / (2 * squares));
}

/// All of it, whatever the split is.
double parameters_of(double width) { return 96 * (12 * width * width + 13 * width) + (50257 + 2048 + 2) * width; }

} // namespace

TEST_CASE("the largest models fill the largest rank with 2 B parameters", "[lecture]") {
  TaughtCapability const lecture = compare_taught_capability();
  REQUIRE(lecture.methods.size() == 7);
  constexpr std::int64_t samples = 1562; // whole ones of 3.2 M tokens in sequences of 2048
  for (CapabilityRow const& row : lecture.methods) {
    INFO(row.method);
    bool const has_replicas = row.method.ends_with("DP"), has_tensor = row.method.starts_with("MP");
    bool const has_stages = row.method.find("PP") != std::string::npos;
    std::int64_t const parts = (has_tensor ? 96 : 1) * (has_stages ? 98 : 1);
    if (row.method == "ZeRO") {
      CHECK(row.degree == samples);
      CHECK_THAT(row.exact, WithinRel(2e9 * samples, 1e-15));
      continue;
    }
    CHECK(row.degree == parts * (has_replicas ? samples : 1));
    double width = widest(96 * 12, 96 * 13 + 50257 + 2048 + 2);
    // a tensor rank has 96th parts of blocks, but for 6 h of each, and 524 of 50257 rows
    if (has_tensor) width = widest(12, 7 + 96 * 6 + 524 + 2048 + 2);
    // 98 stages: a block, its tables lie elsewhere
    if (has_stages) width = widest(12, 13);
    if (has_tensor && has_stages) width = widest(12.0 / 96, 7.0 / 96 + 6);
    // only DP's model is bounded by the whole one's 2 B
    CHECK_THAT(row.exact, WithinRel(row.method == "DP" ? 2e9 : parameters_of(width), 1e-15));
  }
  auto const exact = [&](char const* method) {
    return std::ranges::find(lecture.methods, method, &CapabilityRow::method)->exact;
  };
  // 96 cards of blocks, and tables beside them: never 98 cards
  CHECK(exact("PP") > 96 * 1.999e9);
  CHECK(exact("PP") < 96 * 2e9 + 52307 * 12911.0);
  CHECK(exact("MP + PP + DP") < 96 * 96 * 2e9 + 52307 * 126500.0);
}

TEST_CASE("one rank of one stage holds the whole model, others their share and what is not shared", "[lecture]") {
  std::int64_t const whole = 50257 * h + 2048 * h + 96 * (12 * h * h + 13 * h) + 2 * h;
  CHECK(largest_rank_parameters(gpt3, 1, 1) == whole);
  // 6283 rows of the token table (50257 / 8 rounded up), of a block 12 h^2 + 7 h shared and 6 h whole
  CHECK(largest_rank_parameters(gpt3, 8, 1) == 6283 * h + 2048 * h + 96 * ((12 * h * h + 7 * h) / 8 + 6 * h) + 2 * h);
  CHECK(largest_rank_parameters(gpt3, 1, 96) == 50257 * h + 2048 * h + 12 * h * h + 13 * h);
  CHECK(largest_rank_parameters(gpt3, 1, 40) == 50257 * h + 2048 * h + 3 * (12 * h * h + 13 * h)); // 2 or 3 blocks
  CHECK_THROWS_AS(largest_rank_parameters(gpt3, 5, 1), Error);
  CHECK(largest_rank_parameters(gpt3, 1, 97) == 50257 * h + 2048 * h + 12 * h * h + 13 * h); // the last has no block
  CHECK(largest_rank_parameters(gpt3, 1, 98) == 12 * h * h + 13 * h);                        // neither has the first
  CHECK_THROWS_AS(largest_rank_parameters(gpt3, 1, 99), Error);
}

TEST_CASE("least degrees are legal, fit, and the next smaller legal ones do not", "[lecture]") {
  TaughtCapability const lecture = compare_taught_capability();
  for (DegreeRow const& row : lecture.models) {
    INFO(row.name);
    CHECK(row.config.heads % row.node_tensor_ranks == 0);
    for (std::size_t card = 0; card < capability_cards.size(); ++card) {
      LeastDegrees const& least = row.on_cards[card];
      auto const fits = [&](std::int64_t t, std::int64_t p) {
        return 16.0 * static_cast<double>(largest_rank_parameters(row.config, t, p)) <= capability_cards[card];
      };
      for (std::int64_t t = 1; t <= row.config.heads; ++t)
        if (row.config.heads % t == 0) CHECK(fits(t, 1) == (least.tensor && t >= *least.tensor));
      for (std::int64_t p = 1; p <= row.config.layers + 2; ++p) {
        CHECK(fits(1, p) == (least.pipeline && p >= *least.pipeline));
        CHECK(fits(row.node_tensor_ranks, p) == (least.both && p >= *least.both));
      }
      auto const state = 16.0 * static_cast<double>(largest_rank_parameters(row.config, 1, 1));
      CHECK(state / static_cast<double>(least.zero3) <= capability_cards[card]);
      if (least.zero3 > 1) CHECK(state / static_cast<double>(least.zero3 - 1) > capability_cards[card]);
    }
  }
}

TEST_CASE("GPT-3 needs 88 cards of 32 GB, and as many stages as there can be", "[lecture]") {
  LeastDegrees const& least = row_of(compare_taught_capability(), "gpt3-175b").on_cards[0];
  CHECK(least.zero3 == 88);    // 2793.7 GB / 32
  CHECK(least.pipeline == 98); // a block: 1.812 B * 16 = 29 GB; with the tables, 0.643 B more, 39 GB
  CHECK(least.tensor == 96);   // 48 give 58.9 GB
  CHECK(row_of(compare_taught_capability(), "gpt2-xl").on_cards[0].zero3 == 1);
}
