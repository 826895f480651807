// Kernels that repeat are started by graphs. On hosts a graph calls the function again that was recorded, with the
// arguments of then, so an argument that has changed since would show in the bits.

#include "core/kernel_graph.hpp"
#include "parallel/engine/parameter_hash.hpp"
#include "support/training_run.hpp"
#include "train/trainer.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

using namespace trainstone;
using namespace trainstone::test;

namespace {

/// What four steps have, and what they count.
struct Seen {
  std::vector<double> losses, norms;
  std::vector<std::uint64_t> launches, flops;
  std::uint64_t hash = 0;
  bool operator==(Seen const&) const = default;
};

Seen train(Communicator& world, RunConfig config, bool graphs) {
  config.kernels.graphs = graphs;
  TrainingRun run(world, config);
  Seen seen;
  for (std::int64_t step = 1; step <= 4; ++step) {
    counters() = {};
    StepReport report = run.trainer.step(step);
    run.trainer.finish(report);
    seen.losses.push_back(report.loss);
    seen.norms.push_back(report.skipped ? -1 : report.norm);
    seen.launches.push_back(total_launches(counters()));
    seen.flops.push_back(model_flops(counters()));
    if (step == 2) seen.losses.push_back(run.trainer.validate());
  }
  seen.hash = parameter_hash(run.exec, run.trainer.engine());
  return seen;
}

void check_same(Communicator& world, RunConfig const& config) {
  StartedGraphs const before = started_graphs();
  Seen const one_by_one = train(world, config, false);
  CHECK(started_graphs().graphs == before.graphs);
  CHECK(train(world, config, true) == one_by_one);
}

} // namespace

TEST_CASE("steps have the same bits, FLOPs and kernels if graphs start their kernels", "[mpi][graphs]") {
  Communicator world = Communicator::world();
  Index const accumulation = GENERATE(1, 3, 65);
  RunConfig config = training_config({2, 3, 12, 11, 29}, {2, accumulation, 2 * accumulation * world.size()});
  config.model_options.recompute = {GENERATE(Recompute::none, Recompute::full)};
  StartedGraphs const before = started_graphs();
  check_same(world, config);
  CHECK(started_graphs().graphs > before.graphs);
  config.parallel = {.strategy = Strategy::zero, .zero_stage = 3};
  check_same(world, config);
}

TEST_CASE("a graph is not started with another scale of the loss or other masks than it has", "[mpi][graphs]") {
  Communicator world = Communicator::world();
  RunConfig config = training_config({2, 3, 12, 11, 29}, {2, 1, 2 * world.size()});
  SECTION("the third step overflows, and the next scale is smaller") {
    config.precision = {.recipe = RecipeName::mixed16, .storage = Storage::fp16, .loss_scale = LossScaling::dynamic};
    config.precision.initial_loss_scale = 1024;
    config.faults.overflow_step = 3;
    config.faults.overflow_rank = 0;
    check_same(world, config);
  }
  SECTION("every step has other masks") {
    config.model_options.dropout = 0.3;
    check_same(world, config);
  }
}

TEST_CASE("graphs start the kernels of steps with many micro-batches", "[mpi][graphs]") {
  Communicator world = Communicator::world();
  RunConfig config = training_config({1, 1, 4, 3, 5}, {1, 150, 150 * world.size()});
  config.kernels.graphs = true;
  TrainingRun run(world, config);
  for (std::int64_t step = 1; step <= 3; ++step) {
    std::uint64_t const before = started_graphs().graphs;
    StepReport report = run.trainer.step(step);
    run.trainer.finish(report);
    if (step == 1)
      CHECK(started_graphs().graphs == before);
    else
      CHECK(started_graphs().graphs >= before + 150);
  }
}

TEST_CASE("the host makes no more than 12 L + 40 calls for the kernels of a step", "[mpi][graphs]") {
  Communicator world = Communicator::world();
  std::uint64_t const layers = 12;
  RunConfig config = training_config({static_cast<Index>(layers), 3, 12, 11, 29}, {2, 1, 2 * world.size()});
  config.kernels.graphs = true;
  TrainingRun run(world, config);
  for (std::int64_t step = 1; step <= 3; ++step) {
    counters() = {};
    StartedGraphs const before = started_graphs();
    StepReport report = run.trainer.step(step);
    run.trainer.finish(report);
    std::uint64_t const graphs = started_graphs().graphs - before.graphs,
                        in_graphs = started_graphs().kernels - before.kernels;
    std::uint64_t const calls = total_launches(counters()) - in_graphs + graphs;
    INFO("step " << step << ": " << total_launches(counters()) << " kernels, " << in_graphs << " of them in " << graphs
                 << " graphs");
    if (step == 1) CHECK(graphs == 0);
    if (step > 1 && world.size() == 1) CHECK(calls <= 12 * layers + 40);
    if (step > 1) CHECK(in_graphs >= 28 * layers);
  }
}
