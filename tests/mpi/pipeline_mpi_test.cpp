// Training on the stages of a pipeline: what is counted equals what was planned on every stage, and the bits are those
// of data parallelism alone.

#include "train/trainer.hpp"

#include "comm/execution/control.hpp"
#include "core/error.hpp"
#include "core/launch.hpp"
#include "parallel/engine/parameter_hash.hpp"
#include "parallel/pipeline/pipeline_bubble.hpp"
#include "parallel/pipeline/pipeline_proof.hpp"
#include "parallel/plan/pipeline_problems.hpp"
#include "support/counted_run.hpp"
#include "support/traffic.hpp"
#include "support/training_run.hpp"
#include "train/plan/program_proof.hpp"
#include "train/verification/run_verification.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

using namespace trainstone;
using namespace trainstone::test;

namespace {

/// Of a pipeline with all ranks as stages, or with two or four data ranks.
struct Stages {
  Rank stages, data;
};

struct Scheduled {
  std::string schedule;
  Index chunks;
};

std::vector<Stages> shapes_of(Rank ranks) {
  std::vector<Stages> all;
  for (Rank const data : {1, 2, 4})
    if (ranks % data == 0 && ranks / data > 1) all.push_back({ranks / data, data});
  return all;
}

RunConfig pipeline_config(Stages const& shape, GptConfig const& model, Index micro_batches) {
  RunConfig config = training_config(model, {2, micro_batches, 2 * micro_batches * shape.data});
  config.parallel.pipeline = shape.stages;
  return config;
}

bool is_legal(Communicator const& world, RunConfig const& config) {
  return !find_pipeline_problem(config.parallel, world.size(), config.model.layers, config.batch.accumulation);
}

/// The number of slots in use behind every instruction of a step that computes a part of a chunk or moves a message, as
/// the proof of the stage's program has it. Within a chunk's backward it is the number before the backward.
std::vector<Index> proved_slots(RunConfig const& config, RunPlan const& plan) {
  PipelineProgram const program = training_pipeline(config.parallel, config.batch.accumulation);
  auto const stage = static_cast<std::size_t>(plan.parallel.pipeline.stage);
  std::vector<Index> const in_use = slots_in_use(program)[stage];
  std::vector<Index> expected;
  auto const add = [&](Index times, Index slots) {
    expected.insert(expected.end(), static_cast<std::size_t>(times), slots);
  };
  Index before = 0;
  for (std::size_t i = 0; i < in_use.size(); before = in_use[i++]) {
    StageInstruction const& one = program.stages[stage].instructions[i];
    if (!computes(one.act)) add(1, in_use[i]);
    Index const parts = plan.parallel.parts.chunk_parts(one.chunk).size();
    bool const turns = program.shape.is_last(plan.parallel.pipeline.stage, one.chunk); // head's backward comes at once
    if (one.act == StageAct::forward) add(parts + (turns ? 1 : 0), in_use[i]);
    if (one.act == StageAct::backward) add(parts - (turns ? 2 : 1), before);
    if (one.act == StageAct::backward) add(1, in_use[i]);
  }
  return expected;
}

/// The same, as a step has it.
std::vector<Index> played_slots(Trainer& trainer) {
  std::vector<Index> counted;
  trainer.time_instructions([&](Instruction const& one, double) {
    Act const act = one.act == Act::wait ? one.started : one.act;
    if (act == Act::forward || act == Act::backward || act == Act::send || act == Act::receive)
      counted.push_back(trainer.slots().count());
  });
  trainer.step(1);
  trainer.time_instructions(nullptr);
  return counted;
}

} // namespace

TEST_CASE("memory, FLOPs, bytes and messages of every stage equal those planned", "[mpi][pipeline]") {
  Communicator world = Communicator::world();
  Recompute const again = GENERATE(Recompute::none, Recompute::selective, Recompute::full);
  Index const micro_batches = GENERATE(1, 2, 4, 5);
  std::vector<Stages> shapes = shapes_of(world.size());
  shapes.push_back({1, world.size()});
  for (Stages const& shape : shapes)
    for (ParallelConfig const& strategy : strategies(shape.data)) {
      RunConfig config = pipeline_config(shape, {6, 3, 12, 11, 29}, micro_batches);
      set_strategy(config, strategy);
      if (shape.stages > 1) config.parallel.pipeline_schedule = micro_batches == 5 ? "gpipe" : "1f1b";
      config.model_options.recompute = {again};
      if (micro_batches == 4) config.model_options.loss_chunks = 4;
      if (micro_batches == 5) config.model_options.dropout = 0.25;
      INFO(shape.stages << " stages, " << shape.data << " data ranks, stage " << strategy.zero_stage << " of ZeRO");
      check_counts(world, config);
    }
}

TEST_CASE("a model in slices keeps to its plan on every stage", "[mpi][pipeline]") {
  Communicator world = Communicator::world();
  Index const slices = GENERATE(2, 4);
  RecipeName const recipe = GENERATE(RecipeName::fp32, RecipeName::mixed16, RecipeName::mixed18);
  Recompute const again = GENERATE(Recompute::none, Recompute::full);
  bool const powers_of_two = std::has_single_bit(static_cast<unsigned>(world.size()));
  std::vector<Stages> shapes = shapes_of(world.size());
  shapes.push_back({1, world.size()});
  for (Stages const& shape : shapes)
    for (ParallelConfig const& strategy : strategies(shape.data)) {
      RunConfig config = pipeline_config(shape, {6, 4, 24, 12, 100}, 2);
      config.data.sequence = 8;
      set_strategy(config, strategy);
      config.parallel.tensor_blocks = slices;
      if (powers_of_two) config.parallel.reduction = ReductionMode::ordered; // wide sums
      config.precision.recipe = recipe;
      config.model_options.recompute = {again};
      if (again == Recompute::full) config.model_options = {.dropout = 0.25, .recompute = {again}, .loss_chunks = 2};
      INFO(shape.stages << " stages, " << shape.data << " data ranks, stage " << strategy.zero_stage << " of ZeRO");
      check_counts(world, config);
    }
}

TEST_CASE("every schedule keeps to its plan", "[mpi][pipeline]") {
  Communicator world = Communicator::world();
  auto const [schedule, chunks] = GENERATE(Scheduled{"naive", 1}, Scheduled{"gpipe", 1}, Scheduled{"1f1b-eager", 1},
                                           Scheduled{"interleaved", 1}, Scheduled{"interleaved", 2});
  for (Stages const& shape : shapes_of(world.size())) {
    RunConfig config = pipeline_config(shape, {2 * shape.stages, 3, 12, 11, 29}, 2 * shape.stages);
    config.parallel.pipeline_schedule = schedule;
    config.parallel.pipeline_chunks = chunks;
    REQUIRE(is_legal(world, config));
    check_counts(world, config);
  }
}

TEST_CASE("the slots in use are those of the proof, at every instruction", "[mpi][pipeline]") {
  Communicator world = Communicator::world();
  auto const [schedule, chunks] = GENERATE(Scheduled{"naive", 1}, Scheduled{"gpipe", 1}, Scheduled{"1f1b", 1},
                                           Scheduled{"1f1b-eager", 1}, Scheduled{"interleaved", 2});
  Recompute const again = GENERATE(Recompute::none, Recompute::full);
  for (Stages const& shape : shapes_of(world.size())) {
    RunConfig config = pipeline_config(shape, {2 * shape.stages, 3, 12, 11, 29}, 2 * shape.stages);
    config.parallel.strategy = Strategy::zero;
    config.parallel.zero_stage = 3;
    config.parallel.pipeline_schedule = schedule;
    config.parallel.pipeline_chunks = chunks;
    config.model_options.recompute = {again};
    INFO(schedule << " on " << shape.stages << " stages, " << shape.data << " data ranks");
    TrainingRun run(world, config);
    std::vector<Index> const counted = played_slots(run.trainer);
    CHECK(counted == proved_slots(config, run.plan));
    CHECK(std::ranges::max(counted) == run.plan.parallel.pipeline.copies().slots);
    CHECK(run.trainer.slots().count() == 0);
  }
}

TEST_CASE("a stage of the head alone uses its slot until the head has turned round", "[mpi][pipeline]") {
  Communicator world = Communicator::world();
  if (world.size() < 2 || world.size() > 4) return;
  std::string const schedule = GENERATE("gpipe", "1f1b");
  RunConfig config = pipeline_config({world.size(), 1}, {4, 3, 12, 11, 29}, 4);
  config.parallel.pipeline_schedule = schedule;
  config.parallel.stage_cut = StageCut::listed;
  config.parallel.stages = world.size() == 2   ? std::vector<std::int64_t>{4, 0}
                           : world.size() == 3 ? std::vector<std::int64_t>{0, 4, 0}
                                               : std::vector<std::int64_t>{1, 1, 2, 0};
  TrainingRun run(world, config);
  std::vector<Index> const counted = played_slots(run.trainer);
  bool const is_head = run.plan.parallel.parts.chunk_parts(0).size() == 1 && run.plan.parallel.parts.has_head();
  CHECK(is_head == (world.rank() == world.size() - 1));
  if (is_head)
    CHECK(std::ranges::max(counted) == 1); // the program keeps inputs and gradients until its backward
  else
    CHECK(counted == proved_slots(config, run.plan));
  CHECK(run.trainer.slots().count() == 0);
}

TEST_CASE("a pipeline ends with the bits of data parallelism", "[mpi][pipeline]") {
  Communicator world = Communicator::world();
  Rank const ranks = world.size();
  if ((ranks & (ranks - 1)) != 0) return; // ordered mode
  GptConfig const model{2 * ranks, 3, 12, 11, 29};
  auto const hash_of = [&](RunConfig config) {
    config.parallel.reduction = ReductionMode::ordered;
    config.optimizer.clip = 0.5;
    TrainingRun run(world, config);
    std::vector<double> losses;
    for (std::int64_t step = 1; step <= 3; ++step) losses.push_back(run.trainer.step(step).loss);
    losses.push_back(run.trainer.validate());
    run.trainer.finish();
    return std::pair(parameter_hash(run.exec, run.trainer.engine()), losses);
  };
  auto const expected = hash_of(training_config(model, {2, 8 / ranks, 16}));
  for (Stages const& shape : shapes_of(ranks))
    for (ParallelConfig const& strategy : strategies(shape.data))
      for (auto const& [schedule, chunks] :
           {Scheduled{"naive", 1}, Scheduled{"gpipe", 1}, Scheduled{"1f1b", 1}, Scheduled{"interleaved", 2}}) {
        RunConfig config = pipeline_config(shape, model, 8 / shape.data);
        set_strategy(config, strategy);
        config.parallel.pipeline_schedule = schedule;
        config.parallel.pipeline_chunks = chunks;
        if (!is_legal(world, config)) continue;
        INFO(schedule << " on " << shape.stages << " stages, " << shape.data << " data ranks");
        auto const found = hash_of(config);
        CHECK(found.first == expected.first);
        CHECK(found.second == expected.second);
      }
}

TEST_CASE("gradients that overflow on the last stage skip the step on all stages", "[mpi][pipeline]") {
  Communicator world = Communicator::world();
  Rank const ranks = world.size();
  if ((ranks & (ranks - 1)) != 0) return; // ordered mode
  GptConfig const model{2 * ranks, 3, 12, 11, 29};
  auto const hash_of = [&](RunConfig config, Rank overflows) {
    config.parallel.reduction = ReductionMode::ordered;
    config.precision = {.recipe = RecipeName::mixed16, .storage = Storage::fp16, .loss_scale = LossScaling::dynamic};
    config.precision.initial_loss_scale = 1024;
    config.faults.overflow_step = 2;
    config.faults.overflow_rank = overflows;
    TrainingRun run(world, config);
    for (std::int64_t step = 1; step <= 3; ++step) {
      StepReport const report = run.trainer.step(step);
      CHECK(report.skipped == (step == 2));
      CHECK(report.loss_scale == (step < 3 ? 1024 : 512));
    }
    run.trainer.finish();
    CHECK(check_replicas(run.exec, world, run.trainer).passed);
    return parameter_hash(run.exec, run.trainer.engine());
  };
  std::uint64_t const expected = hash_of(training_config(model, {2, 8 / ranks, 16}), 0);
  for (Stages const& shape : shapes_of(ranks))
    for (ParallelConfig const& strategy : strategies(shape.data)) {
      RunConfig config = pipeline_config(shape, model, 8 / shape.data);
      set_strategy(config, strategy);
      INFO(shape.stages << " stages, " << shape.data << " data ranks, " << to_string(strategy.strategy));
      CHECK(hash_of(config, ranks - 1) == expected);
    }
}

TEST_CASE("a value that is not finite is named by stage's part", "[mpi][pipeline]") {
  Communicator world = Communicator::world();
  if (world.size() != 2) return;
  RunConfig config = pipeline_config({2, 1}, {2, 3, 12, 11, 29}, 2);
  config.faults.nan_step = 2;
  config.faults.nan_part = "mlp 1";
  TrainingRun run(world, config);
  run.trainer.step(1);
  std::string text;
  try {
    run.trainer.step(2);
  } catch (CollectiveError const& error) {
    text = error.what();
  }
  CHECK(text.find("part \"mlp 1\"") != std::string::npos);
}

TEST_CASE("a training on stages can end with a step", "[mpi][pipeline]") {
  Communicator world = Communicator::world();
  for (Stages const& shape : shapes_of(world.size()))
    for (ParallelConfig const& strategy : strategies(shape.data)) {
      RunConfig config = pipeline_config(shape, {3 * shape.stages, 3, 12, 11, 29}, 4);
      set_strategy(config, strategy);
      INFO(shape.stages << " stages, " << shape.data << " data ranks, stage " << strategy.zero_stage << " of ZeRO");
      TrainingRun run(world, config);
      run.trainer.step(1);
      CHECK_NOTHROW(run.trainer.finish()); // parameters of some units are under way, and of others still to be gathered
    }
}

TEST_CASE("paced blocks take at least their time, and the idle time of measured stages is theirs", "[mpi][pipeline]") {
  Communicator world = Communicator::world();
  if (world.size() != 2) return;
  RunConfig config = pipeline_config({2, 1}, {2, 3, 12, 11, 29}, 4);
  config.model_options.recompute = {Recompute::full};
  config.faults.pace_forward = 2e-3;
  config.faults.pace_backward = 4e-3;
  config.faults.straggler_rank = 1;
  config.faults.straggler_factor = 2;
  TrainingRun run(world, config);
  StageClock clock(run.plan.parallel.parts);
  run.trainer.measure_stage(&clock);
  comm_counters() = {};
  run.trainer.step(1);
  run.trainer.measure_stage(nullptr);
  CHECK(comm_counters().total(Purpose::training) == run.plan.step_sent());
  CHECK(comm_counters().total(Purpose::control) == run.plan.step_control());

  StageTimes const& own = clock.times();
  REQUIRE(own.forward.size() == 1);
  double const factor = world.rank() == 1 ? 2 : 1;
  CHECK(own.forward[0] >= factor * 4 * 2e-3); // one block, four micro-batches
  CHECK(own.backward[0] >= factor * 4 * 4e-3);
  CHECK(own.until_end >= own.busy());

  std::vector<StageTimes> stages;
  for (auto const& [end, forward, backward] :
       all_gather_values(world, std::array{own.until_end, own.forward[0], own.backward[0]}))
    stages.push_back({end, {forward}, {backward}});
  PipelineBubble const bubble = pipeline_bubble(training_pipeline(config.parallel, 4), "1f1b", stages, 0);
  double const seconds = std::max(stages[0].until_end, stages[1].until_end);
  double const busy = stages[0].forward[0] + stages[0].backward[0] + stages[1].forward[0] + stages[1].backward[0];
  CHECK(bubble.seconds == seconds);
  CHECK(std::abs(bubble.idle_share - (1 - busy / (2 * seconds))) < 1e-12);
  CHECK(std::abs(bubble.parts.busy - busy) < 16 * 1e-9); // 16 operations, whose means are whole nanoseconds
  CHECK(bubble.parts.messages == 0);
}
