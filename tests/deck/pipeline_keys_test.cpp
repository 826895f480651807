// The keys of a pipeline: what they fill, and what is refused, with the nearest legal values.

#include "deck/deck.hpp"

#include "parallel/plan/pipeline_plan.hpp"
#include "support/deck_fixture.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <string>
#include <vector>

using namespace trainstone;
using namespace trainstone::test;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::EndsWith;
using Catch::Matchers::StartsWith;

namespace {

/// Of a deck with 4 blocks and 8 samples per step, on a number of ranks: the message, without the place.
std::string error_on(std::int64_t ranks, std::vector<std::string> overrides) {
  overrides.insert(overrides.begin(), {"model.layers=4", "batch.micro=1"});
  return input_error_of([&] { resolve(read_small(overrides), ranks); });
}

} // namespace

TEST_CASE("keys of a pipeline fill its configuration", "[deck]") {
  ParallelConfig const even = read_small({"parallel.pipeline=2"}).config.parallel;
  CHECK(even.pipeline == 2);
  CHECK(even.pipeline_schedule == "1f1b");
  CHECK(even.stage_cut == StageCut::even);
  ParallelConfig const balanced = read_small({"parallel.pipeline=2", "parallel.stages=balanced"}).config.parallel;
  CHECK(balanced.stage_cut == StageCut::balanced);
  ParallelConfig const listed = read_small({"parallel.pipeline=2", "parallel.stages=[2, 0]"}).config.parallel;
  CHECK(listed.stage_cut == StageCut::listed);
  CHECK(listed.stages == std::vector<std::int64_t>{2, 0});
  Deck const written = read_small({"parallel.pipeline=2", "parallel.stages=[\"2\", \"0\"]"}); // as a deck is recorded
  CHECK(written.config.parallel.stages == listed.stages);
  CHECK(error_on(4, {"parallel.pipeline=4", "parallel.stages=[2, 1, 1, 0]"}) == "no InputError");
}

TEST_CASE("data ranks share the batch, stages do not", "[deck]") {
  RunConfig const config = resolve(read_small({"parallel.pipeline=2"}), 4);
  CHECK(config.batch.accumulation == 2); // 8 samples, 2 data ranks, micro-batches of 2
}

TEST_CASE("numbers of stages that are not legal are refused with the nearest legal ones", "[deck]") {
  CHECK_THAT(error_on(6, {"parallel.pipeline=4"}),
             ContainsSubstring("does not divide the 6 ranks; nearest legal values: 3 or 6 stages"));
  CHECK_THAT(error_on(12, {"parallel.pipeline=12"}), EndsWith("nearest legal value on 12 ranks: 6"));
  CHECK_THAT(error_on(8, {"parallel.pipeline=8"}), EndsWith("nearest legal value on 8 ranks: 4"));
  CHECK_THAT(error_on(7, {"parallel.pipeline=7", "batch.global=8"}), EndsWith("nearest legal value on 7 ranks: 1"));
  CHECK(error_on(6, {"parallel.pipeline=6"}) == "no InputError");
  CHECK_THAT(error_on(3, {"parallel.pipeline=3", "parallel.reduction=ordered"}),
             EndsWith("needs a power of two of stages, not 3; nearest legal values: 2 or 4"));
}

TEST_CASE("cuts that are not legal are refused with a legal one", "[deck]") {
  CHECK_THAT(error_on(2, {"parallel.pipeline=2", "parallel.stages=[2, 1]"}),
             ContainsSubstring("are 3 in sum, the model has 4, for example [2, 2]"));
  CHECK_THAT(error_on(2, {"parallel.pipeline=2", "parallel.stages=[2, 1, 1]"}),
             ContainsSubstring("has 3 numbers for 2 stages, for example [2, 2]"));
  CHECK_THAT(error_on(4, {"parallel.pipeline=4", "parallel.stages=[2, 0, 2, 0]"}),
             ContainsSubstring("needs a block, for example [1, 1, 1, 1]"));
  CHECK(
      input_error_of([] { read_small({"parallel.stages=odd"}); }) ==
      "--set parallel.stages=odd: parallel.stages: \"odd\" is no cut into stages, must be even, balanced or a list of "
      "numbers of blocks");
  CHECK(input_error_of([] { read_small({"parallel.stages=[\"2\", \"x\"]"}); }) ==
        "--set parallel.stages=[\"2\", \"x\"]: parallel.stages: \"x\" is no whole number");
  CHECK_THAT(input_error_of([] { read_text(small_deck + "[parallel]\npipeline = 2\nstages = \"odd\"\n"); }),
             StartsWith("inputs/small.toml:16: parallel.stages: \"odd\" is no cut"));
  CHECK_THAT(error_on(2, {"parallel.pipeline=2", "parallel.stages=\"\""}), ContainsSubstring("even, balanced"));
  CHECK_THAT(error_on(2, {"parallel.pipeline=2", "parallel.granularity=step", "parallel.reduce=each"}),
             EndsWith("legal value of parallel.reduce: \"last\""));
  CHECK_THAT(error_on(2, {"parallel.pipeline=2", "parallel.stages=[2.5, 1.5]"}),
             ContainsSubstring("a string or a list of integers"));
}

TEST_CASE("schedules that do not fit are refused with the nearest legal numbers", "[deck]") {
  std::string const chunks = "parallel.pipeline_schedule=interleaved";
  CHECK_THAT(error_on(2, {"parallel.pipeline=2", chunks, "batch.global=5"}),
             EndsWith("the nearest are 4 and 6; batch.global or batch.accumulation sets their number"));
  CHECK_THAT(error_on(2, {"parallel.pipeline=2", chunks, "parallel.pipeline_chunks=3"}),
             ContainsSubstring("is 1 or 2, not 3"));
  CHECK_THAT(error_on(2, {"parallel.pipeline=2", "parallel.pipeline_chunks=2"}),
             ContainsSubstring("interleaved can have more"));
  CHECK(error_on(2, {"parallel.pipeline=2", chunks, "parallel.pipeline_chunks=2"}) == "no InputError");
  CHECK_THAT(
      error_on(2, {"parallel.pipeline=2", "parallel.pipeline_schedule=zb-h1"}),
      EndsWith("\"zb-h1\" is there for explain: a training computes gradients of inputs and parameters together; "
               "legal values: naive, gpipe, 1f1b, 1f1b-eager, interleaved"));
  CHECK_THAT(error_on(2, {"parallel.pipeline=2", "parallel.pipeline_schedule=some"}),
             EndsWith("must be one of naive, gpipe, 1f1b, 1f1b-eager, interleaved"));
}

TEST_CASE("keys of a pipeline are not read without one", "[deck]") {
  CHECK_THAT(error_on(2, {"parallel.pipeline_chunks=2"}),
             ContainsSubstring("is not read with parallel.pipeline = 1, only with parallel.pipeline above 1"));
  CHECK_THAT(error_on(2, {"parallel.stages=balanced"}),
             ContainsSubstring("is not read with parallel.pipeline = 1, only with parallel.pipeline above 1"));
  CHECK_THAT(error_on(2, {"parallel.pipeline_schedule=gpipe"}),
             ContainsSubstring("is not read with parallel.pipeline = 1, only with parallel.pipeline above 1"));
}

TEST_CASE("if one stage replaces a deck's pipeline, the other keys of the pipeline are ignored", "[deck]") {
  for (std::string const keys : {"stages = [3, 1]\n", "pipeline_schedule = \"interleaved\"\npipeline_chunks = 3\n"}) {
    std::string const text = small_deck + "[parallel]\npipeline = 2\n" + keys;
    CHECK(input_error_of([&] { resolve(read_text(text), 2); }) != "no InputError");
    RunConfig const config = resolve(read_text(text, {"parallel.pipeline=1"}), 2);
    BlockCosts const costs{.blocks = {1, 1}, .head = 1};
    CHECK(model_stages(config.parallel, costs, 2) == std::vector<ModelStage>{ModelStage::whole(config.model)});
  }
}

TEST_CASE("idle time is measured of a pipeline only", "[deck]") {
  CHECK(read_small({"bench.pipeline=true", "parallel.pipeline=2"}).config.bench.pipeline);
  CHECK_THAT(error_on(2, {"bench.pipeline=true"}), EndsWith("it needs parallel.pipeline above 1"));
  CHECK(error_on(2, {"bench.pipeline=true", "parallel.pipeline=2"}) == "no InputError");
  CHECK(error_on(2, {"bench.pipeline=false"}) == "no InputError");
}

TEST_CASE("gradients overflow on a rank of the last stage", "[deck]") {
  std::vector<std::string> const overflow{"parallel.pipeline=2", "faults.overflow.step=1", "precision.recipe=mixed16",
                                          "precision.storage=fp16", "precision.loss_scale=dynamic"};
  CHECK_THAT(error_on(4, overflow), EndsWith("nearest legal value: 2"));
  std::vector<std::string> last = overflow;
  last.emplace_back("faults.overflow.rank=3");
  CHECK(error_on(4, last) == "no InputError");
  std::vector<std::string> tensor = overflow; // both ranks of the last stage have the head
  tensor.insert(tensor.end(), {"parallel.tensor=2", "model.heads=2", "model.channels=8"});
  CHECK_THAT(error_on(4, tensor), EndsWith("nearest legal value: 2"));
  tensor.emplace_back("faults.overflow.rank=2");
  CHECK(error_on(4, tensor) == "no InputError");
  tensor.emplace_back("parallel.pipeline=1");
  tensor.emplace_back("faults.overflow.rank=0");
  CHECK(error_on(4, tensor) == "no InputError");
}

TEST_CASE("strategies that have no pipeline are refused", "[deck]") {
  CHECK_THAT(
      error_on(2, {"parallel.pipeline=2", "parallel.strategy=naive"}),
      EndsWith(
          "\"naive\" has no pipeline; nearest legal values: pipeline 1, or strategy \"ddp\", \"zero\" or \"hsdp\""));
  CHECK_THAT(error_on(2, {"parallel.pipeline=2", "parallel.strategy=zero", "parallel.zero_stage=1",
                          "parallel.partition=inter_layer"}),
             EndsWith("legal value with parallel.pipeline = 2: \"intra_layer\""));
}

TEST_CASE("a grid of tensor ranks fills its keys in, and the stronger of it and parallel.tensor wins", "[deck][grid]") {
  auto const read = [](std::vector<std::string> overrides) {
    overrides.insert(overrides.end(), {"model.heads=4", "model.channels=8"});
    return read_small(overrides);
  };
  ParallelConfig const usual = read({}).config.parallel;
  CHECK(usual.features() == 1);
  CHECK_FALSE(usual.has_grid());
  Deck const deck = read({"parallel.tensor_grid=[2, 4, 3]"});
  ParallelConfig const& parallel = deck.config.parallel;
  CHECK(parallel.tensor == 2);
  CHECK(parallel.features() == 4);
  CHECK(parallel.strategy == Strategy::hsdp);
  CHECK(parallel.shard_group == 3);
  CHECK(to_string(deck.origins.at("parallel.tensor")) == "derived");
  ParallelConfig const flat = read({"parallel.tensor_grid=[4, 1, 1]"}).config.parallel;
  CHECK(flat.tensor == 4);
  CHECK(flat.features() == 1);
  CHECK(flat.strategy == Strategy::ddp);
  ParallelConfig const third =
      read({"parallel.tensor_grid=[1, 2, 2]", "parallel.strategy=zero", "parallel.zero_stage=3"}).config.parallel;
  CHECK(third.strategy == Strategy::zero);
  CHECK(third.shard_group == 0);
  CHECK_THAT(error_on(4, {"parallel.tensor_grid=[2, 2]"}), ContainsSubstring("must be a list of 3 numbers"));
  CHECK_THAT(error_on(4, {"parallel.tensor_grid=[2, 0, 1]"}), ContainsSubstring("out of range"));
  CHECK_THAT(error_on(4, {"parallel.tensor_grid=[1, 1.5, 1]"}), ContainsSubstring("must be whole numbers"));
  CHECK_THAT(error_on(4, {"parallel.tensor_grid=[2, 2, 1]", "parallel.tensor=4"}),
             ContainsSubstring("parallel.tensor = 4 contradicts parallel.tensor_grid = [2, 2, 1]"));
  CHECK_THAT(error_on(4, {"parallel.tensor_grid=[3, 1, 1]", "model.heads=3", "model.channels=6"}),
             StartsWith("--set parallel.tensor_grid=[3, 1, 1]: parallel.tensor = 3 does not divide the 4 ranks") &&
                 EndsWith("(parallel.tensor follows from parallel.tensor_grid)"));
}

TEST_CASE("tensor ranks that do not fit the ranks or the model are refused with legal values", "[deck]") {
  auto const error = [](std::int64_t ranks, std::vector<std::string> overrides) {
    overrides.insert(overrides.end(), {"model.heads=12", "model.channels=24", "model.context=12", "data.sequence=12"});
    return error_on(ranks, overrides);
  };
  for (std::string const tensor : {"1", "2", "3", "4", "6", "12"})
    CHECK(error(12, {"parallel.tensor=" + tensor, "batch.global=12"}) == "no InputError");
  CHECK(error(12, {"parallel.tensor=3", "parallel.pipeline=2", "batch.global=12"}) == "no InputError");
  CHECK_THAT(
      error(4, {"parallel.tensor=3"}),
      ContainsSubstring(
          "parallel.tensor = 3 does not divide the 4 ranks; legal values: 1, 2 or 4, or ranks in multiples of 3"));
  CHECK_THAT(error(4, {"parallel.tensor=4", "parallel.pipeline=2"}),
             ContainsSubstring("does not divide the 2 ranks of a stage; legal values: 1 or 2, or ranks in multiples of "
                               "8"));
  CHECK_THAT(error(3, {"parallel.tensor=2"}),
             ContainsSubstring("does not divide the 3 ranks; legal values: 1 or 3, or ranks in multiples of 2"));
  CHECK_THAT(error(5, {"parallel.tensor=2"}), // 5 do not divide the heads
             ContainsSubstring("does not divide the 5 ranks; legal values: 1, or ranks in multiples of 2"));
  CHECK_THAT(error(4, {"parallel.tensor=8"}), // no number of ranks helps
             ContainsSubstring("does not divide the 12 heads; legal values: 1, 2, 3, 4, 6 or 12"));
  CHECK_THAT(error(8, {"parallel.tensor=8"}),
             ContainsSubstring("does not divide the 12 heads; legal values: 1, 2, 3, 4, 6 or 12"));
  CHECK_THAT(error_on(2, {"model.heads=25", "model.channels=50", "parallel.tensor=2"}),
             ContainsSubstring("parallel.tensor = 2 does not divide the 25 heads; legal values: 1, 5 or 25"));
  CHECK_THAT(error(3, {"parallel.tensor=3", "parallel.reduction=ordered"}),
             ContainsSubstring("parallel.tensor = 3 is no power of two, which parallel.reduction = \"ordered\" needs; "
                               "legal values: 1, 2 or 4"));
  CHECK_THAT(error(4, {"parallel.tensor=4", "parallel.tensor_blocks=2"}),
             ContainsSubstring("parallel.tensor_blocks = 2 is no multiple of parallel.tensor = 4; legal values: 4"));
  CHECK(error(2, {"parallel.tensor=2", "parallel.sequence=true"}) == "no InputError");
  CHECK_THAT(
      error(1, {"parallel.sequence=true"}),
      ContainsSubstring("parallel.sequence = true needs several tensor ranks; parallel.tensor = 1; legal values: "
                        "parallel.sequence = false, or parallel.tensor = 2"));
  CHECK_THAT(error_on(3, {"model.heads=12", "model.channels=24", "model.context=8", "data.sequence=8",
                          "parallel.tensor=3", "parallel.sequence=true"}),
             ContainsSubstring("parallel.sequence = true needs a parallel.tensor that divides the 8 positions of a "
                               "sample; parallel.tensor = 3; legal values: parallel.sequence = false, or "
                               "parallel.tensor = 2 or 4"));
  CHECK(error(2, {"parallel.tensor=2", "parallel.tensor_row_chunks=6"}) == "no InputError"); // of 12 rows
  CHECK_THAT(error(2, {"parallel.tensor=2", "parallel.tensor_row_chunks=5"}),
             ContainsSubstring("parallel.tensor_row_chunks = 5 does not divide the 12 rows of a micro-batch; nearest "
                               "legal values: 4 or 6"));
  CHECK_THAT(error(2, {"parallel.tensor=2", "parallel.sequence=true", "parallel.tensor_row_chunks=2"}),
             ContainsSubstring("parallel.tensor_row_chunks = 2 does not divide the 1 sample of a micro-batch"));
  CHECK_THAT(
      error(2, {"parallel.tensor_row_chunks=2"}),
      ContainsSubstring(
          "parallel.tensor_row_chunks is not read with parallel.tensor = 1, only with parallel.tensor above 1, or "
          "parallel.tensor_blocks above 0"));
  CHECK_THAT(error(2, {"parallel.tensor=2", "parallel.tensor_keep_gathered=true"}),
             ContainsSubstring("parallel.tensor_keep_gathered is not read with parallel.sequence = false"));
  CHECK_THAT(
      error(2, {"parallel.tensor=2", "comm.tensor_all_gather=ring"}),
      ContainsSubstring(
          "comm.tensor_all_gather is not read with parallel.sequence = false, only with parallel.sequence = true"));
  CHECK_THAT(error(2, {"parallel.tensor=2", "parallel.strategy=naive"}),
             EndsWith("\"naive\" has no tensor ranks; nearest legal values: tensor 1, or strategy \"ddp\", \"zero\" or "
                      "\"hsdp\""));
  CHECK_THAT(error(2, {"parallel.tensor=2", "parallel.strategy=zero", "parallel.zero_stage=1",
                       "parallel.partition=inter_layer"}),
             EndsWith("legal value with parallel.tensor = 2: \"intra_layer\""));
}

TEST_CASE("slices that do not fit the model are refused with legal values", "[deck]") {
  std::vector<std::string> const model{"model.heads=4", "model.channels=16", "model.context=12", "data.sequence=12"};
  auto const error = [&](std::string const& slices) {
    std::vector<std::string> overrides = model;
    overrides.push_back("parallel.tensor_blocks=" + slices);
    return error_on(1, overrides);
  };
  CHECK(error("4") == "no InputError");
  CHECK_THAT(error("3"), ContainsSubstring("= 3 is no power of two; legal values: 1, 2 or 4"));
  CHECK_THAT(error("8"), ContainsSubstring("= 8 does not divide the 4 heads; legal values: 1, 2 or 4"));
  CHECK_THAT(error_on(1, {"model.heads=25", "model.channels=50", "parallel.tensor_blocks=2"}),
             ContainsSubstring("does not divide the 25 heads; legal values: 1"));
  CHECK_THAT(error_on(1, {"model.heads=8", "model.channels=16", "model.context=12", "data.sequence=12",
                          "parallel.tensor_blocks=8"}),
             ContainsSubstring("does not divide the 12 positions of a sample; legal values: 1, 2 or 4"));
  CHECK_THAT(
      error_on(2, {"model.heads=4", "model.channels=16", "model.context=9", "data.sequence=9", "parallel.tensor=2",
                   "parallel.reduction=ordered"}),
      ContainsSubstring("parallel.tensor_blocks = 2, a slice for each tensor rank, does not divide the 9 positions "
                        "of a sample; no number of slices is legal with parallel.tensor = 2"));
}
