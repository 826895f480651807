// The largest sizes that fit, found by bisection: the plan says that they fit and that the next ones do not.

#include "advice/largest_fit.hpp"

#include "parallel/pipeline/pipeline_schedules.hpp"
#include "train/plan/extreme_plans.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace trainstone;

namespace {

DeckOnRanks deck_on(std::int64_t ranks, std::string const& more = "") {
  std::string const text = R"(
model.layers = 2
model.heads = 4
model.channels = 32
model.context = 16
model.vocab = 64
data.source = "synthetic"
data.steps = 4
batch.micro = 2
batch.accumulation = 2
kernels.gemm = "kokkos"
)";
  return {text + more, {}, ranks, 1};
}

/// By the plans of all ranks, without any search.
std::uint64_t most_needed(DeckOnRanks const& asked) {
  ResolvedRun const run = planned_run(asked);
  std::uint64_t most = 0;
  for (Rank rank = 0; rank < run.topology.ranks(); ++rank) most = std::max(most, plan_run(run, rank).kernel_memory());
  return most;
}

} // namespace

TEST_CASE("galloping and bisection find the last number for which a condition holds", "[advice]") {
  for (std::int64_t most = 1; most <= 40; ++most)
    for (std::int64_t last = 0; last <= most + 3; ++last) {
      INFO(most << " " << last);
      int calls = 0;
      auto const found = largest_that(most, [&](std::int64_t number) {
        ++calls;
        CHECK((1 <= number && number <= most));
        return number <= last;
      });
      CHECK(found.value_or(0) == std::min(most, last));
      CHECK(calls <= 13);
    }
  CHECK_FALSE(largest_that(0, [](std::int64_t) { return true; }));
}

TEST_CASE("the largest sizes fit by the plans of all ranks, and the next legal ones do not", "[advice]") {
  std::string const pipeline = "parallel.pipeline = 2\nparallel.pipeline_schedule = \"interleaved\"\n"
                               "parallel.pipeline_chunks = 2\nmodel.layers = 4\n";
  std::string const tensor = "parallel.tensor = 2\nparallel.sequence = true\nmemory.loss_chunks = 2\n";
  std::vector<DeckOnRanks> decks{deck_on(1), deck_on(4, "parallel.strategy = \"zero\"\nparallel.zero_stage = 3\n"),
                                 deck_on(4, tensor)};
  DeckOnRanks stages = deck_on(4, pipeline);
  stages.text.erase(stages.text.find("model.layers = 2\n"), 17);
  decks.push_back(stages);
  for (DeckOnRanks const& asked : decks)
    for (std::uint64_t const memory : {std::uint64_t{600'000}, std::uint64_t{2'000'000}, std::uint64_t{9'000'000}}) {
      INFO(asked.text << memory);
      for (LargestFit const& one : largest_fits(asked, memory)) {
        INFO(one.key << one.refused);
        CHECK(one.refused.empty());
        if (one.fits) {
          CHECK(most_needed(asked.with(one.fits->keys)) == one.fits->needed);
          CHECK(one.fits->needed <= memory);
        }
        REQUIRE(one.beyond);
        CHECK(most_needed(asked.with(one.beyond->keys)) == one.beyond->needed);
        CHECK(one.beyond->needed > memory);
        CHECK(one.beyond->value == (one.fits ? one.fits->value + one.step : one.beyond->value));
      }
    }
}

TEST_CASE("a size between legal ones is refused, which is why steps are longer than 1", "[advice]") {
  DeckOnRanks const asked = deck_on(2, "parallel.tensor = 2\n");
  std::vector<LargestFit> const fits = largest_fits(asked, 2'000'000);
  CHECK(fits[2].step == 16); // two heads of 8 channels, one for each tensor rank
  CHECK_THROWS_AS(needed_memory(asked.with({"model.channels=40", "model.heads=5"})), InputError);
  CHECK_NOTHROW(needed_memory(asked.with({"model.channels=48", "model.heads=6"})));
}

TEST_CASE("a deck that lists its blocks has no largest number of layers, and says why", "[advice]") {
  DeckOnRanks const asked = deck_on(1, "memory.recompute = [\"none\", \"full\"]\n");
  std::vector<LargestFit> const fits = largest_fits(asked, 2'000'000);
  CHECK(fits[1].key == "model.layers");
  CHECK(fits[1].refused.find("memory.recompute") != std::string::npos);
  CHECK(fits[0].fits);
  CHECK(largest_fits_text(fits).find("not searched") != std::string::npos);
}

TEST_CASE("a plan of memory alone is that of the whole plan", "[advice]") {
  for (auto const& asked : {deck_on(3), deck_on(4, "parallel.tensor = 2\n"), deck_on(4, "parallel.pipeline = 2\n")}) {
    ResolvedRun const run = planned_run(asked);
    for (Rank rank = 0; rank < run.topology.ranks(); ++rank) {
      RunPlan const whole = plan_run(run, rank), memory = plan_memory(run, rank), traffic = plan_traffic(run, rank);
      CHECK(memory.memory_bytes().total() == whole.memory_bytes().total());
      CHECK(traffic.step_sent() == whole.step_sent());
      CHECK(traffic.step_control() == whole.step_control());
    }
    CHECK(plan_largest(run).memory_bytes().total() ==
          plan_extremes(run.config, run.topology).largest.memory_bytes().total());
  }
}

TEST_CASE("a stage that keeps more than the ones before it is looked at, too", "[advice]") {
  std::string again; // of four stages the second and the third one keep all
  for (int block = 0; block < 20; ++block)
    again += fmt::format("{}\"{}\"", block > 0 ? "," : "", block / 5 == 1 || block / 5 == 2 ? "none" : "full");
  DeckOnRanks const asked = deck_on(20).with(
      {"model.layers=20", "batch.accumulation=8", "parallel.pipeline=4", "memory.recompute=[" + again + "]"});
  CHECK(first_of_kinds(planned_run(asked)).size() == 3);
  CHECK(needed_memory(asked) == most_needed(asked));
}

TEST_CASE("of stages with the same parts none needs more memory than the first one", "[advice]") {
  for (std::string const& schedule : training_schedules())
    for (std::string const strategy : {"ddp", "zero"}) { // 20 ranks: so many that some stand for the others
      DeckOnRanks asked = deck_on(20).with({"model.layers=20", "batch.accumulation=8", "parallel.pipeline=4",
                                            "parallel.pipeline_schedule=" + schedule, "parallel.strategy=" + strategy});
      if (strategy == "zero") asked = asked.with({"parallel.zero_stage=1"});
      if (schedule == "interleaved") asked = asked.with({"parallel.pipeline_chunks=2", "model.layers=24"});
      INFO(schedule << ", " << strategy);
      ResolvedRun const run = planned_run(asked);
      CHECK(first_of_kinds(run).size() < 4);
      CHECK(needed_memory(asked) == most_needed(asked));
    }
}
