// What a report says of operations per byte.

#include "report/intensity_section.hpp"

#include "core/error.hpp"
#include "support/deck_fixture.hpp"
#include "support/result_fixture.hpp"
#include "train/plan/run_plan.hpp"
#include "train/plan/step_prediction.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <fmt/format.h>

using namespace trainstone;
using namespace trainstone::test;
using Catch::Matchers::ContainsSubstring;

namespace {

/// As if a run of a small deck had sent 1000 bytes in a step.
NamedResult result_of(std::vector<std::string> const& keys, Rank ranks, PeakInfo const& peaks = {}) {
  Deck const deck = read_small(keys);
  RunPlan const plan = plan_run(resolve(deck, ranks), 0, ranks);
  Result run = run_of(Outcome::valid, ranks, 100);
  run.parameters = resolved_parameters(deck, ranks);
  run.predicted.flops = run.counted.flops = plan.step_flops.total();
  run.predicted.sent_bytes = run.counted.sent_bytes = 1000;
  run.peaks = peaks;
  run.topology.buffers = to_string(plan.parallel.message_buffers);
  if (!buffers_refusal("host").empty()) run.machine.device = "a device";
  return named("small", run);
}

} // namespace

TEST_CASE("operations per byte are those of the plan and of the messages that were counted", "[report]") {
  NamedResult const named = result_of({}, 2);
  Intensity const intensity = intensity_of(named.file);
  RunPlan const plan = plan_run(resolve(read_small({}), 2), 0, 2);
  REQUIRE(intensity.rows.size() == 4);
  CHECK(intensity.rows[0].work.flops == plan.step_flops.gemm);
  CHECK(intensity.rows[1].work.flops == plan.step_flops.attention);
  CHECK(intensity.rows[3].work == update_work(plan, resolve(read_small({}), 2).optimizer));
  PhaseWork const sum = intensity.sum();
  std::string const page = page_markdown(intensity_section(named));
  auto const per_byte = [&](std::uint64_t bytes) {
    return fmt::format("{:.4g}", static_cast<double>(sum.flops) / static_cast<double>(bytes));
  };
  CHECK_THAT(page, ContainsSubstring("| FLOP per byte of memory | " + per_byte(sum.bytes) + " |"));
  CHECK_THAT(page, ContainsSubstring("| FLOP per byte sent | " + per_byte(1000) + " |"));
  CHECK_THAT(page, !ContainsSubstring("at the peaks of this run")); // it measured none
}

TEST_CASE("the peaks of a run say whether arithmetic or memory bounds its products", "[report]") {
  PhaseWork const products = intensity_of(result_of({}, 1).file).rows.front().work;
  double const intensity = static_cast<double>(products.flops) / static_cast<double>(products.bytes);
  auto const page_with = [](PeakInfo const& peaks) {
    return page_markdown(intensity_section(result_of({}, 1, peaks)));
  };
  CHECK_THAT(page_with({2e9 * intensity, 1e9}), ContainsSubstring("memory bounds them"));
  std::string const page = page_with({0.5e9 * intensity, 1e9});
  CHECK_THAT(page, ContainsSubstring("arithmetic bounds them, not memory"));
  // products take flops / (0.5e9 x intensity) s, in which 1000 bytes are sent
  double const seconds = static_cast<double>(products.flops) / (0.5e9 * intensity);
  CHECK_THAT(page, ContainsSubstring(fmt::format("| {:.4g} |", 1e-6 * 1000 / seconds)));
}

TEST_CASE("a result that this version plans otherwise has no operations per byte, and the page says why", "[report]") {
  NamedResult named = result_of({}, 1);
  named.file.result.predicted.flops += 1;
  CHECK_THROWS_AS(intensity_of(named.file), InputError);
  CHECK_THAT(page_markdown(intensity_section(named)),
             ContainsSubstring("There are no operations per byte: ") && ContainsSubstring("another version wrote it"));
}
