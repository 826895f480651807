// What a step takes at least, and with every message on top.

#include "train/plan/step_prediction.hpp"

#include "train/plan/pipeline_prediction.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <limits>

using namespace trainstone;
using Catch::Approx;

namespace {

RunConfig small_config(Rank ranks) {
  RunConfig config;
  config.model = {2, 1, 8, 5, 29};
  config.data.sequence = 5;
  config.batch = {1, 1, ranks};
  config.kernels.gemm = "kokkos";
  return config;
}

} // namespace

TEST_CASE("a step's floor is its products at the GEMM rate and 28 bytes per parameter at the bandwidth",
          "[train][prediction]") {
  for (Rank const ranks : {1, 3}) {
    RunConfig const config = small_config(ranks);
    RunPlan const plan = plan_run(config, 0, ranks);
    auto const flops = static_cast<double>(plan.step_flops.gemm);
    auto const parameters = static_cast<double>(plan.table.model_parameters());
    double const expected = ranks * flops / 7e9 + 28 * parameters / 3e9;
    CHECK(floor_seconds(plan, config.optimizer, {7e9, 3e9}) == Approx(expected));
  }
}

TEST_CASE("an update does 17 FLOP on 28 bytes per parameter, of which shards have their part", "[train][prediction]") {
  for (Strategy const strategy : {Strategy::ddp, Strategy::zero}) {
    RunConfig config = small_config(3);
    config.parallel.strategy = strategy;
    config.parallel.zero_stage = strategy == Strategy::zero ? 1 : 0;
    PhaseWork all;
    for (Rank rank = 0; rank < 3; ++rank) {
      PhaseWork const one = update_work(plan_run(config, rank, 3), config.optimizer);
      all.flops += one.flops;
      all.bytes += one.bytes;
    }
    // 128 is the padded vocabulary: V h + s h + L (12 h^2 + 13 h) + 2 h
    std::uint64_t const parameters = 128 * 8 + 5 * 8 + 2 * (12 * 64 + 13 * 8) + 2 * 8;
    std::uint64_t const copies = strategy == Strategy::ddp ? 3 : 1;
    CHECK(all == PhaseWork{17 * copies * parameters, 28 * copies * parameters});
  }
  RunConfig config = small_config(1);
  config.optimizer.type = OptimizerType::sgd;
  config.optimizer.momentum = 0;
  PhaseWork const plain = update_work(plan_run(config, 0, 1), config.optimizer);
  CHECK(plain.bytes * 5 == plain.flops * 12);
  config.precision.recipe = RecipeName::mixed20;
  PhaseWork const mixed = update_work(plan_run(config, 0, 1), config.optimizer);
  CHECK(mixed.bytes * 5 == mixed.flops * (12 + 2)); // gradients are read from their fp32 copy
}

TEST_CASE("on an alpha-beta-gamma machine messages of a step cost alpha each, beta per byte and gamma per byte added",
          "[train][prediction]") {
  constexpr Rank ranks = 3;
  RunConfig const config = small_config(ranks);
  RunPlan const plan = plan_run(config, 1, ranks);
  Traffic const sent = plan.step_sent() + plan.step_control();
  AlphaBetaGamma const machine{.alpha = 2e-6, .beta = 3e-9, .gamma = 5e-10};
  StepPrediction const step = predict_step(plan, plan, config.optimizer, {7e9, 3e9}, uniform_machine(machine));
  double const expected = machine.alpha * static_cast<double>(sent.messages) +
                          machine.beta * static_cast<double>(sent.bytes) +
                          machine.gamma * static_cast<double>(sizeof(float) * sent.reduced);
  CHECK(step.communication_seconds == Approx(expected));
  double const update = 28 * static_cast<double>(plan.table.size()); // of strategy ddp: everything
  CHECK(step.compute_seconds == Approx(static_cast<double>(plan.step_flops.gemm) / 7e9 + update / 3e9));
}

TEST_CASE("a step's update takes what the rank updates that updates most, at the bandwidth of one rank",
          "[train][prediction]") {
  // With products that take no time, a second is an element that is updated.
  auto const updated = [](Strategy strategy, Rank ranks, StatePartition partition = StatePartition::intra_layer) {
    RunConfig config = small_config(ranks);
    config.parallel.strategy = strategy;
    config.parallel.partition = partition;
    if (config.parallel.strategy == Strategy::zero) config.parallel.zero_stage = 1;
    if (config.parallel.strategy == Strategy::hsdp) config.parallel.shard_group = std::max(1, ranks / 2);
    RunPlan const plan = plan_run(config, ranks - 1, ranks); // any rank's plan knows
    ComputeRates const one{std::numeric_limits<double>::infinity(), 28};
    return predict_step(plan, plan, config.optimizer, one, uniform_machine({})).compute_seconds / plan.table.size();
  };
  for (Rank const ranks : {1, 2, 8}) {
    INFO(ranks);
    CHECK(updated(Strategy::ddp, ranks) == Approx(1));
    CHECK(updated(Strategy::naive, ranks) == Approx(1));
    CHECK(updated(Strategy::zero, ranks) == Approx(1.0 / ranks));
    CHECK(updated(Strategy::hsdp, ranks) == Approx(1.0 / std::max(1, ranks / 2)));
  }
  RunPlan const plan = plan_run(small_config(8), 0, 8);
  auto const largest =
      static_cast<double>(plan.parallel.layout.largest_unit()) / static_cast<double>(plan.table.size());
  CHECK(updated(Strategy::zero, 8, StatePartition::inter_layer) == Approx(largest)); // fewer units than ranks
}

TEST_CASE("where a server sends most, a step takes a worker's products and the server's messages",
          "[train][prediction]") {
  RunConfig config = small_config(2);
  config.parallel.strategy = Strategy::parameter_server;
  RunPlan const worker = plan_run(config, 0, 3), server = plan_run(config, 2, 3);
  REQUIRE(server.step_flops.gemm == 0);
  MachineModel const machine = uniform_machine({.alpha = 1e-6, .beta = 1e-9, .gamma = 0});
  auto const predict = [&](RunPlan const& busiest, RunPlan const& computing) {
    return predict_step(busiest, computing, config.optimizer, {7e9, 3e9}, machine);
  };
  StepPrediction const both = predict(server, worker);
  CHECK(both.compute_seconds > static_cast<double>(worker.step_flops.gemm) / 7e9);
  CHECK(both.compute_seconds == Approx(predict(worker, worker).compute_seconds));
  CHECK(both.communication_seconds == predict(server, server).communication_seconds);
}

TEST_CASE("one rank alone spends no time on messages, and behind a slow network no message is faster than there",
          "[train][prediction]") {
  MachineModel const machine = uniform_machine({.alpha = 1e-6, .beta = 1e-9, .gamma = 0});
  EmulatedNetwork const slow = EmulatedNetwork::uniform({.latency = 1e-3, .seconds_per_byte = 1e-6});
  RunConfig const alone = small_config(1), two = small_config(2);
  RunPlan const of_one = plan_run(alone, 0, 1);
  CHECK(predict_step(of_one, of_one, alone.optimizer, {1e9, 1e9}, machine, slow).communication_seconds == 0);
  RunPlan const plan = plan_run(two, 0, 2);
  Traffic const sent = plan.step_sent() + plan.step_control();
  double const expected = 1e-3 * static_cast<double>(sent.messages) + 1e-6 * static_cast<double>(sent.bytes);
  CHECK(predict_step(plan, plan, two.optimizer, {1e9, 1e9}, machine, slow).communication_seconds == Approx(expected));
}

TEST_CASE("parts are measured under everything that their times depend on", "[train][prediction]") {
  RunConfig const config = small_config(2);
  auto const differs = [&](auto const& change) {
    RunConfig other = config;
    change(other);
    return part_conditions(other) != part_conditions(config);
  };
  CHECK(differs([](RunConfig& one) { one.model.channels = 16; }));
  CHECK(differs([](RunConfig& one) { one.model.heads = 2; }));
  CHECK(differs([](RunConfig& one) { one.model.vocab = 30; }));
  CHECK(differs([](RunConfig& one) { one.batch.micro = 2; }));
  CHECK(differs([](RunConfig& one) { one.data.sequence = 4; }));
  CHECK(differs([](RunConfig& one) { one.precision.recipe = RecipeName::mixed16; }));
  CHECK(differs([](RunConfig& one) { one.parallel.reduction = ReductionMode::ordered; }));
  CHECK(differs([](RunConfig& one) { one.model_options.dropout = 0.1; }));
  CHECK(differs([](RunConfig& one) { one.model_options.attention = AttentionKind::flash; }));
  RunConfig flash = config;
  flash.model_options.attention = AttentionKind::flash;
  CHECK(part_conditions(flash).at("attention") == "flash"); // whoever computes it here
  CHECK(differs([](RunConfig& one) { one.model_options.loss_chunks = 2; }));
  CHECK(differs([](RunConfig& one) { one.kernels.gemm = "blas"; }));
  CHECK(differs([](RunConfig& one) { one.optimizer.type = OptimizerType::sgd; }));
  CHECK(differs([](RunConfig& one) { one.optimizer.momentum = 0.5, one.optimizer.type = OptimizerType::sgd; }));
  CHECK_FALSE(differs([](RunConfig& one) { one.data.sequence = 0; })); // that of the context, which is 5
  CHECK_FALSE(differs([](RunConfig& one) { one.model.layers = 96; }));
  CHECK_FALSE(differs([](RunConfig& one) { one.parallel.strategy = Strategy::zero; }));
}

TEST_CASE("a step of GPT-3 on 65,536 ranks is priced as one of few ranks", "[train][prediction]") {
  constexpr Rank ranks = 65'536;
  RunConfig config;
  config.model = *find_preset("gpt3-175b");
  config.data.sequence = config.model.context;
  config.batch = {1, 1, ranks};
  config.kernels.gemm = "kokkos";
  PartTimes parts;
  parts.parts = {{PartKind::embed, {1e-3, 1e-3, 1e-3}},
                 {PartKind::attention, {0.04, 0.09, 0.09}}, // its backward has three pieces, as that of mlp
                 {PartKind::mlp, {0.06, 0.12, 0.12}},
                 {PartKind::head, {0.01, 0.02, 0.02}}};
  for (Strategy const strategy : {Strategy::ddp, Strategy::zero, Strategy::hsdp}) {
    config.parallel = {.strategy = strategy};
    if (strategy == Strategy::zero) config.parallel.zero_stage = 3;
    if (strategy == Strategy::hsdp) config.parallel.shard_group = 1024;
    RunPlan const plan = plan_run(config, 0, Topology::block(ranks, ranks / 8));
    MachineModel const slow = uniform_machine({.alpha = 2e-6, .beta = 4e-11, .gamma = 1e-11});
    StepTimeline const timeline = predict_timeline({plan}, parts, slow, {});
    REQUIRE(timeline.classes.size() == 1);
    Nanoseconds const computation = 2'000'000 + 96 * 310'000'000L + 30'000'000;
    CHECK(timeline.busiest().compute == computation);
    CHECK(timeline.step == computation + timeline.busiest().exposed());
    CHECK(timeline.busiest().exposed() > 0);
  }
}

TEST_CASE("no predicted step of a pipeline beats the bound that is printed beside it", "[train][prediction]") {
  PartTimes parts;
  for (PartKind const kind : part_kinds) parts.parts[kind] = {1e-3, 2e-3, 3e-3, 4e-4, 9e-4};
  parts.loss = 1e-4;
  MachineModel const fast = uniform_machine({});
  for (Recompute const again : {Recompute::none, Recompute::full})
    for (char const* const schedule : {"naive", "gpipe", "1f1b"})
      for (std::int64_t const stage_of_zero : {0, 3}) {
        RunConfig config = small_config(4);
        config.model.layers = 4;
        config.batch = {1, 4, 8};
        config.parallel.pipeline = 2;
        config.parallel.pipeline_schedule = schedule;
        if (stage_of_zero > 0) config.parallel.strategy = Strategy::zero;
        config.parallel.zero_stage = stage_of_zero;
        config.model_options.recompute = {again};
        std::vector<RunPlan> const stages = plan_stages(resolve_run(config, Topology::one_node(4)));
        double const step = 1e-9 * static_cast<double>(predict_timeline(stages, parts, fast, {}).step);
        PipelinePrediction const pipeline = predict_pipeline(config.parallel, stages, parts, fast, {});
        INFO(schedule << ", stage " << stage_of_zero << " of ZeRO");
        CHECK(pipeline.bound_seconds > 0);
        CHECK(pipeline.bound_seconds <= step);
        CHECK(pipeline.bound_seconds <= pipeline.seconds);
        // 4 micro-batches of 2 blocks on the last stage, and of the head
        if (again == Recompute::none) CHECK(pipeline.bound_seconds >= 4 * (4 * 3e-3 + 3e-3 + 1e-4));
      }
}
