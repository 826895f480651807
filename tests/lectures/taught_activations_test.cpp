// The lecture on activations against the taught figures and against closed forms that are written down here once more.

#include "lectures/taught_activations.hpp"

#include "model/activation_plan.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

using namespace trainstone;
using Catch::Matchers::WithinRel;

namespace {

// gpt3-175b
constexpr double s = 2048, h = 12288, a = 96, layers = 96, sh = s * h, ass = a * s * s;
constexpr double sequences = 3.2e6 / 2048;

KeptRow const& row_of(TaughtActivations const& lecture, std::string_view way) {
  return *std::ranges::find(lecture.ways, way, &KeptRow::way);
}

/// As the table prints it.
std::string digits(double value) { return fmt::format("{:.4g}", value); }

/// What the plan has for one sequence in all blocks.
double planned(GptConfig const& config, GptOptions const& options) {
  std::uint64_t bytes = 0;
  for (PlannedTensor const& tensor : activation_plan(config, {1, config.context}, Storage::bf16, options))
    if (tensor.name.starts_with("block ")) bytes += tensor.bytes;
  return static_cast<double>(bytes);
}

} // namespace

TEST_CASE("a block's sums are 8 sbh + 5 abss, 11 sbh + 5 abss and 34 sbh + 5 abss, as on the slides", "[lecture]") {
  TaughtActivations const lecture = compare_taught_activations();
  REQUIRE(lecture.totals.size() == 3);
  constexpr std::array<double, 3> sbh{8, 11, 34};
  for (std::size_t i = 0; i < sbh.size(); ++i) {
    CHECK(lecture.totals[i].taught.sbh == sbh[i]);
    CHECK(lecture.totals[i].taught.abss == 5);
  }
  CHECK(lecture.totals[0].printed == "5bss + 8sbh"); // a slip of the slide
  CHECK(lecture.totals[1].printed == "5abss + 11sbh");
  CHECK(lecture.totals[2].rows == lecture.tensors.size());
}

TEST_CASE("what is kept of each kind is what is taught, but for the result of attention's dropout", "[lecture]") {
  TaughtActivations const lecture = compare_taught_activations();
  GptConfig const gpt3 = *find_preset("gpt3-175b");
  double kept = 0;
  for (KeptTensorRow const& row : lecture.tensors) {
    INFO(row.kind);
    kept += row.kept;
    if (row.kind == "result of its dropout") {
      CHECK(row.taught.of_sample(gpt3) == 2 * ass);
      CHECK(row.kept == 0);
    } else if (row.kind.starts_with("statistics")) {
      CHECK(row.kept == 16 * s);
    } else {
      CHECK(row.kept == row.taught.of_sample(gpt3));
    }
  }
  CHECK(kept == 34 * sh + 3 * ass + 16 * s);
  CHECK(lecture.totals.back().kept == kept);
}

TEST_CASE("activations of GPT-3 and 3.2 M tokens are 430.3 TB, selective 128.3, full 7.55", "[lecture]") {
  struct Printed {
    std::string_view way, block, batch, sample; // TB, TB, GB
  };
  TaughtActivations const lecture = compare_taught_activations();
  for (Printed const& printed :
       {Printed{"attention's core", "3.46", "332.2", "212.6"}, Printed{"attention", "3.578", "343.5", "219.8"},
        Printed{"all, masks stored", "4.483", "430.3", "275.4"},
        Printed{"selective recomputation", "1.337", "128.3", "82.14"},
        Printed{"full recomputation", "0.07864", "7.55", "4.832"}}) {
    INFO(printed.way);
    std::optional<KeptBytes> const taught = row_of(lecture, printed.way).taught;
    REQUIRE(taught.has_value());
    CHECK(digits(taught->block / 1e12) == printed.block);
    CHECK(digits(taught->batch / 1e12) == printed.batch);
    CHECK(digits(taught->sample / 1e9) == printed.sample);
  }
  CHECK(lecture.state == 2.8e12);
  CHECK(fmt::format("{:.0f}", row_of(lecture, "all, masks stored").taught->batch / lecture.state) == "154");
}

TEST_CASE("taught bytes are their formulas, with tensor ranks and sequence parallelism", "[lecture]") {
  constexpr double t = 8;
  TaughtActivations const lecture = compare_taught_activations();
  auto const sample = [&](std::string_view way) { return row_of(lecture, way).taught.value().sample; };
  CHECK(sample("all, masks stored") == layers * (34 * sh + 5 * ass));
  CHECK(sample("selective recomputation") == layers * 34 * sh);
  CHECK(sample("full recomputation") == layers * 2 * sh);
  CHECK(sample("8 tensor ranks, each") == layers * (10 * sh + 24 * sh / t + 5 * ass / t));
  CHECK(sample("same, sequence parallel") == layers * (34 * sh + 5 * ass) / t);
  for (KeptRow const& row : lecture.ways)
    for (std::optional<KeptBytes> const& bytes : {row.taught, row.kept})
      if (bytes) {
        CHECK_THAT(bytes->batch, WithinRel(bytes->sample * sequences, 1e-15));
        CHECK_THAT(bytes->block, WithinRel(bytes->batch / layers, 1e-15));
      }
}

TEST_CASE("this program keeps what its closed forms say, and what its activation plan has", "[lecture]") {
  TaughtActivations const lecture = compare_taught_activations();
  auto const sample = [&](std::string_view way) { return row_of(lecture, way).kept.value().sample; };
  CHECK(sample("all, masks stored") == layers * (34 * sh + 3 * ass + 16 * s));
  CHECK(sample("all, masks recomputed") == layers * (32 * sh + 2 * ass + 16 * s));
  CHECK(sample("all, flash attention") == layers * (32 * sh + (16 + 4 * a) * s));
  CHECK(sample("selective recomputation") == layers * (32 * sh + 16 * s));
  CHECK(sample("full recomputation") == layers * 2 * sh);
  constexpr double t = 8;
  CHECK(sample("8 tensor ranks, each") == layers * (8 * sh + 24 * sh / t + 2 * ass / t + 16 * s));
  CHECK(sample("same, sequence parallel") == layers * (32 * sh + 2 * ass + 16 * s) / t);

  GptConfig const gpt3 = *find_preset("gpt3-175b");
  GptOptions const recomputed{.dropout = 0.1}, stored{.dropout = 0.1, .dropout_masks = DropoutMasks::stored};
  GptOptions const flash{.attention = AttentionKind::flash, .dropout = 0.1};
  CHECK(sample("all, masks stored") == planned(gpt3, stored));
  CHECK(sample("all, masks recomputed") == planned(gpt3, recomputed));
  CHECK(sample("all, flash attention") == planned(gpt3, flash));
}

TEST_CASE("named models have the bytes of their shapes", "[lecture]") {
  std::vector<KeptOfModelRow> const rows = compare_taught_activations().models;
  REQUIRE(rows.size() == gpt_presets.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    KeptOfModelRow const& row = rows[i];
    INFO(row.name);
    GptConfig const& config = gpt_presets[i].config;
    auto const t = static_cast<double>(config.context), l = static_cast<double>(config.layers);
    double const th = t * static_cast<double>(config.channels), att = static_cast<double>(config.heads) * t * t;
    CHECK(row.taught == l * (34 * th + 5 * att));
    CHECK(row.taught_selective == l * 34 * th);
    CHECK(row.taught_full == l * 2 * th);
    CHECK(row.kept == planned(config, {.dropout = 0.1}));
    CHECK(row.kept == l * (32 * th + 2 * att + 16 * t));
    CHECK(row.kept_flash == planned(config, {.attention = AttentionKind::flash, .dropout = 0.1}));
    CHECK(row.kept_selective == l * (32 * th + 16 * t));
    CHECK(row.kept_full == l * 2 * th);
    CHECK(row.block_again == row.kept / l);
  }
  CHECK(rows.front().state == 16 * 124439808.0);
}

TEST_CASE("full recomputation repeats 16 of 72 n h^2 and attention's forward, selective half of that", "[lecture]") {
  std::vector<RecomputationRow> const rows = compare_taught_activations().recomputation;
  REQUIRE(rows.size() == gpt_presets.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    RecomputationRow const& row = rows[i];
    INFO(row.name);
    GptConfig const& config = gpt_presets[i].config;
    auto const n = static_cast<double>(config.context), c = static_cast<double>(config.channels);
    auto const l = static_cast<double>(config.layers), vocab = static_cast<double>(config.padded_vocab());
    // attention is causal: two products of n (n + 1) / 2 pairs forward, four backward
    double const attention = 2 * n * (n + 1) * c, block = 72 * n * c * c + 3 * attention;
    double const step = l * block + 6 * n * c * vocab;
    CHECK_THAT(row.full_products, WithinRel(16.0 / 72, 1e-14));
    CHECK_THAT(row.full_block, WithinRel((16 * n * c * c + attention) / block, 1e-14));
    CHECK_THAT(row.full_step, WithinRel(l * (16 * n * c * c + attention) / step, 1e-14));
    CHECK_THAT(row.selective_block, WithinRel(attention / 2 / block, 1e-14));
    CHECK_THAT(row.selective_step, WithinRel(l * attention / 2 / step, 1e-14));
  }
  CHECK(taught_full_recomputation == 1.0 / 3);
}
