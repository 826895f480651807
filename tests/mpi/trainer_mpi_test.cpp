// The step loop on several ranks: what is counted equals what was planned, results do not depend on the split beyond
// rounding, faults are named, and everything it launches keeps the rules.

#include "train/trainer.hpp"

#include "comm/algorithms/registry.hpp"
#include "comm/execution/control.hpp"
#include "core/error.hpp"
#include "core/launch.hpp"
#include "parallel/engine/parameter_hash.hpp"
#include "support/tools_guard.hpp"
#include "support/traffic.hpp"
#include "support/training_run.hpp"
#include "train/verification/run_verification.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

using namespace trainstone;
using namespace trainstone::test;

namespace {

GptConfig const odd{2, 3, 12, 11, 29};

/// How often a step looks at messages between two kernels of a part, where only launches drive what is in flight.
int looks_inside_of_parts(TrainingRun& run, std::int64_t step) {
  int looks = 0;
  bool is_inside = false; // right after a kernel that is never a part's last one
  DelayPoint::Scoped const counting(delay_point(), [&](char const* label) {
    std::string_view const reached = label;
    if (is_inside && reached == "trainstone::comm::wait") ++looks;
    is_inside = reached.starts_with("trainstone::attention::");
  });
  run.trainer.step(step);
  return looks;
}

/// Of trainings that take turns, the steps of those that overlap; of which one ends before the other.
std::int64_t fewest_looks_of_turns(Communicator& world) {
  RunConfig config = training_config(odd, {1, 1, world.size()});
  config.parallel.bucket_bytes = 1;
  auto first = std::make_unique<TrainingRun>(world, config);
  auto second = std::make_unique<TrainingRun>(world, config);
  config.parallel.overlap = false;
  TrainingRun idle(world, config);
  int fewest = std::numeric_limits<int>::max();
  for (std::int64_t step = 1; step <= 2; ++step) {
    for (TrainingRun* const run : {first.get(), second.get()})
      fewest = std::min(fewest, looks_inside_of_parts(*run, step));
    CHECK(looks_inside_of_parts(idle, step) == 0);
  }
  second.reset();
  return std::min(fewest, looks_inside_of_parts(*first, 3));
}

} // namespace

TEST_CASE("memory, FLOPs, bytes and messages counted equal those planned", "[mpi][trainer]") {
  auto const model = GENERATE(odd, GptConfig{1, 1, 7, 3, 130}, GptConfig{3, 2, 16, 6, 50});
  Index const accumulation = GENERATE(1, 3);
  Communicator world = Communicator::world();
  RunConfig config = training_config(model, {2, accumulation, 2 * accumulation * world.size()});
  config.model_options.recompute = {GENERATE(Recompute::none, Recompute::selective, Recompute::full)};
  if (accumulation > 1) config.model_options.dropout = 0.25;
  if (config.model_options.recompute.front() == Recompute::full) config.model_options.loss_chunks = 2;
  TrainingRun run(world, config);
  counters() = {};
  comm_counters() = {};
  for (std::int64_t step = 1; step <= 2; ++step) run.trainer.step(step);
  run.trainer.validate();

  CHECK(run.ledger.high_water() == run.plan.memory_bytes());
  auto const evaluated = static_cast<std::uint64_t>(2 * accumulation);
  CHECK(counters().flops[Phase::gemm] == 2 * run.plan.step_flops.gemm + evaluated * run.plan.evaluation_flops.gemm);
  CHECK(counters().flops[Phase::attention] ==
        2 * run.plan.step_flops.attention + evaluated * run.plan.evaluation_flops.attention);
  CHECK(total_launches(counters()) ==
        2 * (run.plan.step_launches + run.plan.update_launches) + evaluated * run.plan.evaluation_launches);
  CHECK(comm_counters().total(Purpose::training) == 2 * run.plan.step_sent());
  CHECK(comm_counters().total(Purpose::control) == 2 * (run.plan.step_control() + run.plan.validation_control));

  // a plan with one item more, or one shape different, is not met
  RunPlan mutated = run.plan;
  mutated.memory.push_back({MemoryCategory::buffers, "one cache line", 64});
  CHECK_FALSE(run.ledger.high_water() == mutated.memory_bytes());
  GptConfig wider = model;
  wider.vocab += 1024; // more than the padding of any number of ranks here
  RunPlan const other = plan_run(training_config(wider, run.resolved.config.batch), world.rank(), world.size());
  CHECK_FALSE(run.ledger.high_water() == other.memory_bytes());
  CHECK(counters().flops[Phase::gemm] != 2 * other.step_flops.gemm + evaluated * other.evaluation_flops.gemm);
  CHECK((world.size() == 1 || comm_counters().total(Purpose::training) != 2 * other.step_sent()));
}

TEST_CASE("every all-reduce trains alike, counted as planned, its memory too", "[mpi][trainer]") {
  int const nodes = GENERATE(1, 2);
  if (nodes > Communicator::world().size()) return;
  Communicator world = test::world(nodes);
  RunConfig config = training_config(odd, {1, 2, 2 * world.size()});
  double first_loss = 0;
  for (Algorithm const algorithm : unlimited_algorithms_of(Collective::all_reduce)) {
    INFO(to_string(algorithm) << " on " << nodes << " nodes");
    RegisteredAlgorithm const& line = find_algorithm(Collective::all_reduce, algorithm);
    if (nodes > 1 && line.needs == MemoryNeed::shared_memory) continue;
    if (!world.reaches_neighbours() && line.uses_shared_memory()) continue;
    config.comm.allreduce = to_string(algorithm);
    TrainingRun run(world, config);
    comm_counters() = {};
    for (std::int64_t step = 1; step <= 2; ++step) run.trainer.step(step);
    double const loss = run.trainer.step(3).loss;
    CHECK(comm_counters().total(Purpose::training) == 3 * run.plan.step_sent());
    CHECK(run.ledger.high_water() == run.plan.memory_bytes());
    CHECK(check_replicas(run.exec, world, run.trainer).passed);
    if (algorithm == unlimited_algorithms_of(Collective::all_reduce).front()) first_loss = loss;
    CHECK(std::abs(loss - first_loss) < 1e-5 * first_loss); // gradients differ by some fp32 roundings
  }
}

TEST_CASE("every optimizer keeps to the memory that was planned, and replicas equal", "[mpi][trainer]") {
  auto const [type, momentum] = GENERATE(std::pair{OptimizerType::adamw, 0.0}, std::pair{OptimizerType::adam, 0.0},
                                         std::pair{OptimizerType::sgd, 0.0}, std::pair{OptimizerType::sgd, 0.9});
  Communicator world = Communicator::world();
  RunConfig config = training_config(odd, {1, 2, 2 * world.size()});
  config.optimizer.type = type;
  config.optimizer.momentum = momentum;
  TrainingRun run(world, config);
  std::uint64_t const start = parameter_hash(run.exec, run.trainer.engine());
  for (std::int64_t step = 1; step <= 3; ++step) run.trainer.step(step);
  CHECK(parameter_hash(run.exec, run.trainer.engine()) != start);
  CHECK(run.ledger.high_water() == run.plan.memory_bytes());
  CHECK(check_replicas(run.exec, world, run.trainer).passed);
}

TEST_CASE("all ranks hold the same bits after every step", "[mpi][trainer]") {
  Communicator world = Communicator::world();
  TrainingRun run(world, training_config(odd, {1, 2, 2 * world.size()}));
  for (std::int64_t step = 1; step <= 3; ++step) {
    run.trainer.step(step);
    std::uint64_t const hash = parameter_hash(run.exec, run.trainer.engine());
    for (std::uint64_t other : all_gather_values(world, hash)) CHECK(other == hash);
  }
}

TEST_CASE("losses agree with a single rank's on the same global batch", "[mpi][trainer]") {
  Communicator world = Communicator::world();
  Index const micro_batches = 2 * world.size();
  TrainingRun run(world, training_config(odd, {1, 2, micro_batches}));
  std::vector<double> losses;
  for (std::int64_t step = 1; step <= 5; ++step) losses.push_back(run.trainer.step(step).loss);
  double const held_out = run.trainer.validate();

  std::optional<Communicator> alone = world.first(1);
  if (!alone) return;
  TrainingRun single(*alone, training_config(odd, {1, micro_batches, micro_batches}));
  for (std::size_t i = 0; i < losses.size(); ++i) {
    // the sum of gradients rounds in another order; five steps of training amplify 1e-7 by far less than 100
    CHECK(std::abs(single.trainer.step(static_cast<std::int64_t>(i) + 1).loss - losses[i]) <= 1e-5 * losses[i]);
  }
  CHECK(std::abs(single.trainer.validate() - held_out) <= 1e-5 * held_out);
  CHECK(losses.back() < losses.front());
}

TEST_CASE("a poisoned part is named with its step on every rank", "[mpi][trainer][faults]") {
  std::string const part = GENERATE("embed", "attention 0", "mlp 0", "attention 1", "mlp 1", "head");
  Communicator world = Communicator::world();
  RunConfig config = training_config(odd, {1, 2, 2 * world.size()});
  config.faults.nan_step = 2;
  config.faults.nan_part = part;
  TrainingRun run(world, config);
  run.trainer.step(1);
  try {
    run.trainer.step(2);
    FAIL("not noticed");
  } catch (CollectiveError const& error) {
    std::string const message = error.what();
    INFO(message);
    CHECK(message.find("step 2") != std::string::npos);
    CHECK(message.find("\"" + part + "\"") != std::string::npos);
    CHECK(error.code() == ExitCode::internal);
  }
}

TEST_CASE("a parameter that is not finite is named by the part that reads it", "[mpi][trainer][faults]") {
  Communicator world = Communicator::world();
  TrainingRun run(world, training_config(odd, {1, 1, world.size()}));
  ParameterTensor const& gain = run.plan.table.find(Tensor::lnfw);
  // an infinite final gain is first read by the head
  Vector<float> const root = run.trainer.engine().whole_parameters(0).as<float>();
  Kokkos::deep_copy(vector_of(gain, root), std::numeric_limits<float>::infinity());
  try {
    run.trainer.step(1);
    FAIL("not noticed");
  } catch (CollectiveError const& error) {
    CHECK(std::string(error.what()).find("\"head\"") != std::string::npos);
  }
}

TEST_CASE("gradients that overflow on one rank skip the step on all, and half the scale", "[mpi][trainer][precision]") {
  Storage const storage = GENERATE(Storage::bf16, Storage::fp16);
  int const stage = GENERATE(0, 1, 3);
  Communicator world = Communicator::world();
  RunConfig config = training_config(odd, {1, 2, 2 * world.size()});
  config.precision = {.recipe = RecipeName::mixed16, .storage = storage, .loss_scale = LossScaling::dynamic};
  config.precision.initial_loss_scale = 1024;
  config.precision.growth_interval = 3;
  if (stage > 0) config.parallel = {.strategy = Strategy::zero, .zero_stage = stage};
  config.faults.overflow_step = 2;
  config.faults.overflow_rank = world.size() - 1;
  TrainingRun run(world, config);
  run.trainer.step(1);
  run.trainer.finish();
  std::uint64_t const before = parameter_hash(run.exec, run.trainer.engine());
  comm_counters() = {};
  StepReport const skipped = run.trainer.step(2);
  run.trainer.finish();
  CHECK(skipped.skipped);
  CHECK(skipped.loss_scale == 1024);
  CHECK(parameter_hash(run.exec, run.trainer.engine()) == before);
  comm_counters() = {};
  for (std::int64_t step = 3; step <= 6; ++step) {
    StepReport const report = run.trainer.step(step);
    CHECK_FALSE(report.skipped);
    CHECK(report.loss_scale == (step < 6 ? 512 : 1024)); // three good steps in between
    CHECK(std::isfinite(report.norm));
  }
  run.trainer.finish();
  CHECK(comm_counters().total(Purpose::training) == 4 * run.plan.step_sent());
  CHECK(parameter_hash(run.exec, run.trainer.engine()) != before);
  CHECK(check_replicas(run.exec, world, run.trainer).passed);
}

TEST_CASE("a skipped update sends less, by what the plan says", "[mpi][trainer][precision]") {
  int const stage = GENERATE(0, 1, 2, 3);
  Communicator world = Communicator::world();
  RunConfig config = training_config(odd, {1, 1, world.size()});
  config.precision = {.recipe = RecipeName::mixed16, .loss_scale = LossScaling::dynamic};
  if (stage > 0) config.parallel = {.strategy = Strategy::zero, .zero_stage = stage};
  config.faults.overflow_step = 1;
  TrainingRun run(world, config);
  comm_counters() = {};
  CHECK(run.trainer.step(1).skipped);
  run.trainer.finish();
  CHECK(comm_counters().total(Purpose::training) + run.plan.update_sent == run.plan.step_sent());
  CHECK((run.plan.update_sent.bytes > 0) == (world.size() > 1 && (stage == 1 || stage == 2)));
}

TEST_CASE("steps that all overflow end the run, naming what overflows", "[mpi][trainer][precision]") {
  Communicator world = Communicator::world();
  RunConfig config = training_config(odd, {1, 1, world.size()});
  config.precision = {.recipe = RecipeName::mixed16, .storage = Storage::fp16, .loss_scale = LossScaling::dynamic};
  config.precision.initial_loss_scale = 0x1p40; // far beyond what fp16 holds
  config.precision.most_skipped = 2;
  TrainingRun run(world, config);
  CHECK(run.trainer.step(1).skipped);
  CHECK(run.trainer.step(2).skipped);
  try {
    run.trainer.step(3);
    FAIL("went on");
  } catch (CollectiveError const& error) {
    std::string const message = error.what();
    INFO(message);
    CHECK(message.find("step 3") != std::string::npos);
    CHECK(message.find("last 3 steps") != std::string::npos);
    CHECK(error.code() == ExitCode::internal);
  }
}

TEST_CASE("a poisoned part is no overflow: it ends the run at any loss scale", "[mpi][trainer][precision]") {
  Communicator world = Communicator::world();
  RunConfig config = training_config(odd, {1, 1, world.size()});
  config.precision = {.recipe = RecipeName::mixed16, .loss_scale = LossScaling::dynamic};
  config.faults.nan_step = 1;
  config.faults.nan_part = "mlp 1";
  TrainingRun run(world, config);
  CHECK_THROWS_AS(run.trainer.step(1), CollectiveError);
}

TEST_CASE("a step labels everything, stays on its instance and fences it alone", "[mpi][trainer]") {
  Communicator world = Communicator::world();
  TrainingRun run(world, training_config(odd, {1, 2, 2 * world.size()}));
  test::ToolsGuard const guard(run.exec, test::engine_collectives);
  run.trainer.step(1);
  run.trainer.validate();
  INFO(fmt::format("{}", fmt::join(guard.violations(), "\n")));
  CHECK(guard.violations().empty());
  CHECK(guard.kernels().size() > 50);
}

TEST_CASE("a step waits for its kernels before it fills arrays and where the host reads a number, and for messages",
          "[mpi][trainer]") {
  Communicator world = Communicator::world();
  Index const accumulation = GENERATE(1, 2, 3);
  RunConfig config = training_config(odd, {1, accumulation, accumulation * world.size()});
  config.parallel = {.strategy = Strategy::zero, .zero_stage = GENERATE(1, 3)};
  TrainingRun run(world, config);
  run.trainer.step(1); // makes what is made once
  run.trainer.finish();
  test::ToolsGuard const guard(run.exec, test::engine_collectives);
  run.trainer.step(2);
  std::map<std::string, int> fences;
  for (std::string const& reason : guard.fences())
    if (!reason.starts_with("trainstone::comm::")) ++fences[reason];
  CHECK(fences == std::map<std::string, int>{{"trainstone::train::load: kernels may still read the batches before", 1},
                                             {"trainstone::train::loss: the host reports it", 1},
                                             {"trainstone::parallel::norm: the host decides on clipping", 1},
                                             {"trainstone::train::step: the step is timed", 1}});
}

TEST_CASE("with a main device, rank 0 reads for all ranks, and every rank gets its own micro-batch", "[mpi][trainer]") {
  Communicator world = Communicator::world();
  RunConfig config = training_config(odd, {1, 2, 2 * world.size()});
  config.parallel.strategy = Strategy::naive;
  config.parallel.naive_update = GENERATE(NaiveUpdate::each, NaiveUpdate::main);
  RunPlan const plan = plan_run(config, world.rank(), world.topology());
  world.use_buffers(plan.parallel.message_buffers, ExecutionSpace());
  TrainingBatches batches = training_batches(odd.vocab);
  std::vector<Index> read;
  auto const counting = [&, source = batches.training](std::int64_t batch, Index micro_batch,
                                                       std::span<std::int32_t> inputs,
                                                       std::span<std::int32_t> targets) {
    read.push_back(micro_batch);
    source(batch, micro_batch, inputs, targets);
  };
  MemoryLedger ledger;
  ExecutionSpace const exec;
  Trainer trainer(exec, world, ledger, config, plan, {counting, {}, 0}, 1);
  trainer.step(1);
  std::vector<Index> expected;
  for (Index own = 0; own < 2; ++own)
    for (Index rank = 0; rank < world.size() && world.rank() == 0; ++rank) expected.push_back(2 * rank + own);
  CHECK(read == expected);
}

TEST_CASE("of trainings that take turns, each one drives its own collectives between its kernels", "[mpi][trainer]") {
  Communicator world = Communicator::world();
  if (!launches_wait || world.size() < 2) return; // nothing is known to be in flight
  std::int64_t looks = 0;
  for (double const latency : {1e-3, 1e-2, 1e-1}) { // much longer than a part's kernels take, also on a busy machine
    if (looks > 0) break;
    world.emulate_network(EmulatedNetwork::uniform({.latency = latency, .seconds_per_byte = 0}));
    looks = control_all_reduce(ExecutionSpace(), world, Operation::min, fewest_looks_of_turns(world));
  }
  CHECK(looks > 0);
}
