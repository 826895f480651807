// Rows of a sweep: what is kept, and that the time of a long pipeline is that of its complete timeline.

#include "advice/sweep.hpp"

#include "train/plan/extreme_plans.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

using namespace trainstone;
using Catch::Approx;

namespace {

std::string const text = R"(
model.layers = 8
model.heads = 4
model.channels = 64
model.context = 32
model.vocab = 64
data.source = "synthetic"
data.steps = 4
batch.micro = 2
batch.global = 16
comm.expected_ranks = 2
kernels.gemm = "kokkos"
)";

StepMachine machine() {
  return {.model = uniform_machine({.alpha = 1e-6, .beta = 1e-9, .gamma = 1e-10}), .rates = {1e10, 1e10}};
}

} // namespace

TEST_CASE("weak scaling keeps micro-batch and accumulation, strong scaling the batch of all", "[advice]") {
  DeckOnRanks const asked{text, {}, 2, 2};
  auto const weak = sweep(asked, {2, 12}, Scaling::weak, machine()),
             strong = sweep(asked, {2, 8}, Scaling::strong, machine());
  REQUIRE(weak.size() == 4);
  std::vector<std::int64_t> const ranks{2, 4, 8, 12};
  for (std::size_t i = 0; i < weak.size(); ++i) {
    SweepRow const& row = weak[i];
    CHECK(row.ranks == ranks[i]);
    CHECK(row.nodes == ranks[i]); // one rank per node, as in the first row
    CHECK(row.samples == 2 * 4 * ranks[i]);
    DeckOnRanks on = asked.with(row.keys);
    on.ranks = row.ranks, on.nodes = row.nodes;
    ResolvedRun const run = planned_run(on);
    CHECK(run.config.batch == BatchConfig{2, 4, row.samples});
    ExtremePlans const extremes = plan_extremes(run.config, run.topology); // with work and all
    CHECK(row.needed == extremes.largest.kernel_memory());
    CHECK(row.sent == extremes.busiest.step_sent() + extremes.busiest.step_control());
    CHECK(row.seconds == price_step(run, machine()).step);
    CHECK(row.efficiency == Approx(weak[0].seconds / row.seconds)); // the same samples per rank
  }
  REQUIRE(strong.size() == 3);
  for (SweepRow const& row : strong) CHECK(row.samples == 16);
  CHECK(strong[2].efficiency == Approx(strong[0].seconds * 2 / (strong[2].seconds * 8)));
}

TEST_CASE("a range of ranks has a form", "[advice]") {
  SweepRange const range = read_sweep_range("ranks=8..65536");
  CHECK((range.first == 8 && range.last == 65536));
  for (char const* const wrong : {"8..16", "ranks=8", "ranks=0..4", "ranks=16..8", "ranks=8..2000000", "ranks=a..b",
                                  "ranks=8...16", "ranks=8..16,32"})
    CHECK_THROWS_MATCHES(read_sweep_range(wrong), InputError,
                         Catch::Matchers::MessageMatches(Catch::Matchers::ContainsSubstring("ranks=FIRST..LAST")));
}

TEST_CASE("the step of many micro-batches grows as between one and two rounds of the pipeline", "[advice]") {
  for (std::string const schedule : {"1f1b", "gpipe", "1f1b-eager", "interleaved"})
    for (int const stages : {2, 4}) {
      std::vector<std::string> keys{"comm.expected_ranks=8", "batch.micro=1",
                                    "parallel.pipeline=" + std::to_string(stages),
                                    "parallel.pipeline_schedule=" + schedule, "batch.global=192"};
      if (schedule == "interleaved") keys.push_back("parallel.pipeline_chunks=2");
      DeckOnRanks asked = DeckOnRanks{text, {}, 8, 2}.with(keys);
      ResolvedRun const run = planned_run(asked);
      std::vector<RunPlan> const plans = plan_stages(run);
      StepMachine const on = machine();
      StepTimeline const whole =
          predict_timeline(plans, part_times(run, plans.front(), on), on.model, run.config.comm.emulated_network());
      StepTime const time = price_step(run, on);
      INFO(schedule << " " << stages);
      CHECK(time.extrapolated);
      CHECK(time.step == Approx(1e-9 * static_cast<double>(whole.step)).epsilon(0.01));
    }
}
