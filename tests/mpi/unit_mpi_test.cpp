// Trainings whose units have several blocks: the bits of units of one block, and what is counted is what was planned.

#include "parallel/engine/parameter_hash.hpp"
#include "parallel/plan/pipeline_problems.hpp"
#include "parallel/plan/strategies.hpp"
#include "support/counted_run.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <bit>
#include <tuple>

using namespace trainstone;
using namespace trainstone::test;

namespace {

GptConfig const odd{5, 3, 12, 11, 29};

std::uint64_t trained_hash(Communicator& world, RunConfig const& config) {
  TrainingRun run(world, config);
  for (std::int64_t step = 1; step <= 3; ++step) {
    run.trainer.step(step);
    if (step == 2) run.trainer.validate(); // gathers on the way
  }
  run.trainer.finish();
  return parameter_hash(run.exec, run.trainer.engine());
}

/// All that share the state out. The same bits need ordered sums in two cases: owners have other blocks with larger
/// units, and the size of a unit chooses the algorithm that adds more than two replicas up.
std::vector<ParallelConfig> sharing(Rank ranks) {
  bool const may_order = std::has_single_bit(static_cast<unsigned>(ranks));
  std::vector<ParallelConfig> all;
  for (ParallelConfig one : strategies(ranks)) {
    bool const depends = one.strategy == Strategy::hsdp && ranks / one.shard_group > 2;
    if (depends && may_order) one.reduction = ReductionMode::ordered;
    if (one.strategy != Strategy::ddp && (!depends || may_order)) all.push_back(one);
  }
  for (Index const stage : {1, 3})
    if (may_order)
      all.push_back({.strategy = Strategy::zero,
                     .zero_stage = stage,
                     .partition = StatePartition::inter_layer,
                     .reduction = ReductionMode::ordered});
  return all;
}

} // namespace

TEST_CASE("units of several blocks train to the bits of units of one block, counted as planned", "[mpi][unit]") {
  Communicator world = Communicator::world();
  auto const recipe = GENERATE(RecipeName::fp32, RecipeName::mixed16);
  auto const bucket = GENERATE(3000.0, 1e9);
  RunConfig config = training_config(odd, {1, 2, 2 * world.size()});
  config.precision.recipe = recipe;
  for (ParallelConfig const& strategy : sharing(world.size())) {
    config.parallel = strategy;
    config.parallel.bucket_bytes = config.parallel.first_bucket_bytes = bucket;
    std::uint64_t const expected = trained_hash(world, config);
    for (auto const& [unit, prefetch, overlap] :
         {std::tuple{2, 0, true}, {2, 1, true}, {2, 1, false}, {2, 2, true}, {3, 1, true}, {5, 2, false}}) {
      INFO(to_string(strategy.strategy) << " stage " << strategy.zero_stage << " unit " << unit << " prefetch "
                                        << prefetch << (overlap ? "" : " no overlap"));
      config.parallel.unit = unit;
      config.parallel.prefetch = prefetch;
      config.parallel.overlap = overlap;
      CHECK(trained_hash(world, config) == expected);
      if (prefetch == 1) check_counts(world, config);
    }
  }
}

TEST_CASE("units of several blocks hold more, and send fewer messages and the same bytes", "[mpi][unit]") {
  Communicator world = Communicator::world();
  if (world.size() == 1) return;
  RunConfig config = training_config(odd, {1, 1, world.size()});
  config.parallel = {.strategy = Strategy::zero, .zero_stage = 3};
  std::vector<Traffic> sent;
  std::vector<std::uint64_t> held;
  for (std::int64_t const unit : {1, 2, 5}) {
    config.parallel.unit = unit;
    TrainingRun run(world, config);
    comm_counters() = {};
    run.trainer.step(1);
    run.trainer.finish();
    sent.push_back(comm_counters().total(Purpose::training));
    held.push_back(run.ledger.high_water().total());
  }
  CHECK(sent[0].bytes == sent[1].bytes);
  CHECK(sent[0].bytes == sent[2].bytes);
  // gathers of 5, 3 and 1 units and root, forward and backward, in rings
  auto const others = static_cast<std::uint64_t>(world.size() - 1);
  CHECK(sent[0].messages - sent[1].messages == 2 * (5 - 3) * others);
  CHECK(sent[0].messages - sent[2].messages == 2 * (5 - 1) * others);
  CHECK(held[0] <= held[1]); // root may be as large as two blocks
  CHECK(held[1] < held[2]);
}

TEST_CASE("units of several blocks train to the same bits with all that saves memory", "[mpi][unit]") {
  Communicator world = Communicator::world();
  RunConfig config = training_config(odd, {1, 2, 2 * world.size()});
  config.parallel = {.strategy = Strategy::zero, .zero_stage = 3};
  std::uint64_t const expected = trained_hash(world, config);
  config.parallel.unit = 2;
  for (auto const& [recompute, parameters] : {std::pair{Recompute::full, Residence::kernels},
                                              {Recompute::selective, Residence::host},
                                              {Recompute::full, Residence::file}}) {
    INFO(to_string(recompute) << ", parameters " << to_string(parameters));
    config.model_options.recompute = {recompute};
    config.parallel.offload_parameters = parameters;
    config.parallel.offload_chunk_bytes = 4096;
    CHECK(trained_hash(world, config) == expected);
    check_counts(world, config);
  }
}

TEST_CASE("units of several blocks end with the chunks of a stage, and train to the same bits", "[mpi][unit]") {
  Communicator world = Communicator::world();
  if (world.size() % 2 != 0) return;
  GptConfig const deep{8, 3, 12, 11, 29};
  RunConfig config = training_config(deep, {1, 4, 2 * world.size()});
  config.parallel = {.strategy = Strategy::zero, .zero_stage = 3, .reduction = ReductionMode::ordered};
  config.parallel.pipeline = 2;
  for (auto const& [schedule, chunks] : {std::pair{"1f1b", 1}, {"interleaved", 2}}) {
    config.parallel.pipeline_schedule = schedule;
    config.parallel.pipeline_chunks = chunks;
    REQUIRE_FALSE(find_pipeline_problem(config.parallel, world.size(), deep.layers, config.batch.accumulation));
    config.parallel.unit = 1;
    std::uint64_t const expected = trained_hash(world, config);
    for (std::int64_t const unit : {2, 3}) {
      INFO(schedule << ", unit " << unit);
      config.parallel.unit = unit;
      CHECK(trained_hash(world, config) == expected);
      check_counts(world, config);
    }
  }
}
