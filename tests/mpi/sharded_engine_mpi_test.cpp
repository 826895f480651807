// The engine on several ranks: what every strategy allocates and sends equals its plan, results agree with one rank's
// to rounding, and in ordered mode to the bit, whatever is sharded, cut, overlapped or delayed.

#include "parallel/engine/parameter_hash.hpp"

#include "comm/execution/control.hpp"
#include "core/host_copy.hpp"
#include "parallel/plan/strategies.hpp"
#include "support/counted_work.hpp"
#include "support/tools_guard.hpp"
#include "support/traffic.hpp"
#include "support/training_run.hpp"
#include "train/verification/equivalence_matrix.hpp"
#include "train/verification/run_verification.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>

using namespace trainstone;
using namespace trainstone::test;

namespace {

GptConfig const odd{2, 3, 12, 11, 29};

std::string describe(ParallelConfig const& parallel) {
  return fmt::format("{}{} stage {}{}{} shard group {} servers {} bucket {} overlap {}", to_string(parallel.strategy),
                     parallel.naive_update == NaiveUpdate::main ? " main" : "", parallel.zero_stage,
                     parallel.partition == StatePartition::inter_layer ? " inter-layer" : "",
                     parallel.gradient_reduction == GradientReductionWay::all_reduce ? " all-reduce" : "",
                     parallel.shard_group, parallel.colocated ? 0 : parallel.servers, parallel.bucket_bytes,
                     parallel.overlap);
}

/// So many micro-batches of one sample on every data rank.
BatchConfig batch_of(ParallelConfig const& parallel, Index micro_batches, Rank ranks) {
  return {1, micro_batches, micro_batches * mesh_of(parallel, ranks).data()};
}

std::vector<ParallelConfig> fast_ones(Rank ranks) {
  std::vector<ParallelConfig> all = all_strategies(ranks);
  all.push_back({.granularity = Granularity::step});
  all.push_back({.granularity = Granularity::tensor});
  all.push_back({.reduce = ReduceWhen::each});
  all.push_back({.strategy = Strategy::zero, .zero_stage = 1, .reduce = ReduceWhen::each});
  if (ranks == 4) all.push_back({.strategy = Strategy::hsdp, .shard_group = 2, .reduce = ReduceWhen::each});
  for (int const stage : {1, 2, 3}) {
    all.push_back({.strategy = Strategy::zero, .zero_stage = stage, .in_flight = 1, .prefetch = 0});
    all.push_back({.strategy = Strategy::zero, .zero_stage = stage, .in_flight = 5, .prefetch = 9});
    all.push_back({.strategy = Strategy::zero,
                   .zero_stage = stage,
                   .partition = StatePartition::inter_layer,
                   .reduce = ReduceWhen::each,
                   .in_flight = 3,
                   .prefetch = 0});
  }
  return all;
}

/// Returns what two steps sent.
Traffic check_counts(TrainingRun& run, Communicator& world) {
  counters() = {};
  comm_counters() = {};
  for (std::int64_t step = 1; step <= 2; ++step) run.trainer.step(step);
  run.trainer.finish();
  Traffic const sent = comm_counters().total(Purpose::training);
  CHECK(sent == 2 * run.plan.step_sent());
  CHECK(comm_counters().total(Purpose::control) == 2 * run.plan.step_control());
  CHECK(total_launches(counters()) == 2 * (run.plan.step_launches + run.plan.update_launches));
  check_work(run.plan, run.resolved.config.optimizer, 2, 0);
  counters() = {};
  comm_counters() = {};
  run.trainer.validate();
  auto const evaluated = static_cast<std::uint64_t>(2 * run.plan.accumulation);
  CHECK(total_launches(counters()) == evaluated * run.plan.evaluation_launches);
  CHECK(comm_counters().total(Purpose::training) == evaluated * run.plan.validation_sent);
  CHECK(comm_counters().total(Purpose::control) == 2 * run.plan.validation_control);
  CHECK(run.ledger.high_water() == run.plan.memory_bytes());
  CHECK(check_replicas(run.exec, world, run.trainer).passed);
  return sent;
}

bool is_everywhere(ExecutionSpace const& exec, Vector<float> values, float expected) {
  std::vector<float> const read = copy_to_host(exec, ConstStoredVector(values), "test: the host compares");
  return std::ranges::all_of(read, [=](float value) { return value == expected; });
}

/// The first row of the matrix on one rank in this recipe.
MatrixRow alone(RecipeName recipe) {
  std::vector<MatrixRow> const rows = equivalence_matrix(1, true);
  return *std::ranges::find(rows, recipe, &MatrixRow::recipe);
}

std::uint64_t hash_after(Communicator& world, RunConfig const& config, std::int64_t steps) {
  TrainingRun run(world, config);
  for (std::int64_t step = 1; step <= steps; ++step) run.trainer.step(step);
  run.trainer.finish();
  return parameter_hash(run.exec, run.trainer.engine());
}

} // namespace

TEST_CASE("every strategy allocates and sends what its plan says", "[mpi][engine]") {
  Index const accumulation = GENERATE(1, 4);
  double const bucket = GENERATE(2048.0, 1e9);
  Communicator world = Communicator::world();
  for (ParallelConfig parallel : fast_ones(world.size())) {
    INFO(describe(parallel) << ", accumulation " << accumulation);
    parallel.bucket_bytes = parallel.first_bucket_bytes = bucket;
    RunConfig config = training_config(odd, batch_of(parallel, accumulation, world.size()));
    config.parallel = parallel;
    TrainingRun run(world, config);
    Traffic const sent = check_counts(run, world);
    // a plan with one message more is not met
    Traffic more = run.plan.step_sent();
    more.messages += 1;
    CHECK_FALSE(sent == 2 * more);
  }
}

TEST_CASE("every recipe allocates and sends what its plan says, with every strategy", "[mpi][engine][precision]") {
  RecipeName const recipe = GENERATE(RecipeName::mixed16, RecipeName::mixed18, RecipeName::mixed20);
  auto const [storage, scaling] =
      GENERATE(std::pair{Storage::bf16, LossScaling::none}, std::pair{Storage::fp16, LossScaling::dynamic});
  auto const reduction = GENERATE(ReductionMode::fast, ReductionMode::ordered);
  Communicator world = Communicator::world();
  for (ParallelConfig parallel : all_strategies(world.size())) {
    auto const data = static_cast<unsigned>(mesh_of(parallel, world.size()).data());
    if (reduction == ReductionMode::ordered && !std::has_single_bit(data)) continue;
    INFO(to_string(recipe) << ' ' << to_string(storage) << ' ' << describe(parallel));
    parallel.reduction = reduction;
    RunConfig config = training_config(odd, batch_of(parallel, 2, world.size()));
    config.precision = {.recipe = recipe, .storage = storage, .loss_scale = scaling};
    config.parallel = parallel;
    TrainingRun run(world, config);
    check_counts(run, world);
  }
}

TEST_CASE(
    "setting the state sends what the plan says, and gives all ranks that of rank 0 where they have it from there",
    "[mpi][engine][start]") {
  RecipeName const recipe = GENERATE(RecipeName::fp32, RecipeName::mixed16, RecipeName::mixed20);
  std::string const buffers = GENERATE("auto", "staged");
  Communicator world = Communicator::world();
  for (ParallelConfig const& parallel : all_strategies(world.size())) {
    INFO(describe(parallel) << ", " << to_string(recipe) << ", buffers " << buffers);
    RunConfig config = training_config(odd, batch_of(parallel, 1, world.size()));
    config.parallel = parallel;
    config.precision.recipe = recipe;
    config.comm.buffers = buffers;
    comm_counters() = {};
    TrainingRun run(world, config);
    CHECK(comm_counters().total(Purpose::start) == run.plan.start_sent());
    bool const from_first = parallel.strategy == Strategy::naive && parallel.naive_update == NaiveUpdate::each;
    CHECK((run.plan.start_sent().messages > 0) == (from_first && world.rank() == 0 && world.size() > 1));
    if (!from_first) continue;
    // every rank would say something else
    ShardedEngine& engine = run.trainer.engine();
    auto const own = static_cast<float>(1 + world.rank());
    Index asked = 0;
    engine.set_parameters([&](Index group, Range, Vector<float> values) {
      ++asked;
      Kokkos::deep_copy(run.exec, values, own);
      for (Index moment = 0; moment < run.plan.parallel.layout.moments; ++moment)
        Kokkos::deep_copy(run.exec, engine.moment_share(moment, group), own * static_cast<float>(2 + moment));
    });
    CHECK(asked == (world.rank() == 0 ? std::ssize(run.plan.parallel.layout.groups) : 0));
    CHECK(comm_counters().total(Purpose::start) == 2 * run.plan.start_sent());
    for (Index group = 0; group < std::ssize(run.plan.parallel.layout.groups); ++group) {
      CHECK(is_everywhere(run.exec, engine.master_share(group), 1));
      for (Index moment = 0; moment < run.plan.parallel.layout.moments; ++moment)
        CHECK(is_everywhere(run.exec, engine.moment_share(moment, group), static_cast<float>(2 + moment)));
    }
    CHECK(check_replicas(run.exec, world, run.trainer).passed);
  }
}

TEST_CASE("a state that rank 0 cannot set ends the setting on all ranks with its reason", "[mpi][engine][start]") {
  Communicator world = Communicator::world();
  RunConfig config = training_config(odd, {1, 1, world.size()});
  config.parallel.strategy = Strategy::naive;
  TrainingRun run(world, config);
  auto const fails = [](Index, Range, Vector<float>) { throw InputError("no such model"); };
  CHECK_THROWS_WITH(run.trainer.engine().set_parameters(fails), Catch::Matchers::ContainsSubstring("no such model"));
}

TEST_CASE("comparing replicas sends what its plan says, under every strategy", "[mpi][engine][replicas]") {
  RecipeName const recipe = GENERATE(RecipeName::fp32, RecipeName::mixed16);
  Communicator world = Communicator::world();
  for (ParallelConfig parallel : all_strategies(world.size())) {
    INFO(describe(parallel));
    parallel.check_replicas = 2;
    RunConfig config = training_config(odd, batch_of(parallel, 2, world.size()));
    config.precision.recipe = recipe;
    config.parallel = parallel;
    TrainingRun run(world, config);
    for (std::int64_t step = 1; step <= 2; ++step) run.trainer.step(step);
    run.trainer.finish();
    comm_counters() = {};
    run.trainer.require_equal_replicas(2);
    CHECK(comm_counters().total(Purpose::control) == run.plan.replica_check);
    CHECK(comm_counters().total(Purpose::training) == Traffic{});
    CHECK(run.plan.replica_checks(5) == 2);
    // a ring all-reduce of two values: 2 (N-1) messages, but nobody sends an empty block
    CHECK((run.plan.replica_check.messages > 0) == (world.size() > 1));
  }
}

TEST_CASE("every strategy in shared memory copies what its plan says", "[mpi][engine]") {
  Communicator world = test::world();
  if (!world.reaches_neighbours()) SKIP("kernels do not reach their neighbours' memory");
  for (ParallelConfig const& parallel : all_strategies(world.size())) {
    if (has_dedicated_servers(parallel)) continue; // pushes and pulls are messages
    INFO(describe(parallel));
    RunConfig config = training_config(odd, batch_of(parallel, 2, world.size()));
    config.parallel = parallel;
    config.comm.allreduce = config.comm.reduce_scatter = config.comm.all_gather = "shared";
    config.comm.reduce = config.comm.broadcast = "shared";
    TrainingRun run(world, config);
    check_counts(run, world);
    // but tokens and targets of the other ranks: 2 micro-batches of one sample of 10 tokens; the start's are others
    bool const sends_data = parallel.strategy == Strategy::naive && world.rank() == 0;
    CHECK(run.plan.step_sent().bytes ==
          (sends_data ? 2 * 2 * 10 * 4 * static_cast<std::uint64_t>(world.size() - 1) : 0));
    CHECK((run.plan.step_sent().shared_bytes > 0) == (world.size() > 1));
  }
}

TEST_CASE("staged messages change neither the bits of a strategy nor the truth of its plan", "[mpi][engine][staged]") {
  Communicator world = Communicator::world();
  RecipeName const recipe = GENERATE(RecipeName::fp32, RecipeName::mixed16, RecipeName::mixed20);
  double const bucket = GENERATE(2048.0, 1e9);
  for (ParallelConfig parallel : recipe == RecipeName::fp32 ? fast_ones(world.size()) : all_strategies(world.size())) {
    INFO(describe(parallel) << ", " << to_string(recipe));
    parallel.bucket_bytes = parallel.first_bucket_bytes = bucket;
    RunConfig config = training_config(odd, batch_of(parallel, 2, world.size()));
    config.parallel = parallel;
    config.precision.recipe = recipe;
    config.comm.buffers = host_reaches_memory ? "host" : "device";
    std::uint64_t const unstaged = plan_run(config, world.rank(), world.topology()).memory_bytes().total();
    config.comm.buffers = "auto";
    std::uint64_t const expected = hash_after(world, config, 2);
    config.comm.buffers = "staged";
    TrainingRun run(world, config);
    CHECK((run.plan.memory_bytes().total() > unstaged) == (world.size() > 1));
    check_counts(run, world);
    CHECK(parameter_hash(run.exec, run.trainer.engine()) == expected);
  }
}

TEST_CASE("staged messages of more than one MiB are cut in training, as planned", "[mpi][engine][staged]") {
  Communicator world = Communicator::world();
  if (world.size() == 1 || world.size() > 3) return; // the blocks of more ranks are shorter
  RunConfig config = training_config({1, 1, 128, 5, 8192}, {1, 1, world.size()});
  for (ParallelConfig const& parallel : {ParallelConfig{}, {.strategy = Strategy::zero, .zero_stage = 3}}) {
    INFO(describe(parallel));
    config.parallel = parallel;
    config.comm.buffers = host_reaches_memory ? "host" : "device";
    Traffic const in_one = plan_run(config, world.rank(), world.topology()).step_sent();
    config.comm.buffers = "staged";
    TrainingRun run(world, config);
    CHECK(run.plan.step_sent().bytes == in_one.bytes);
    CHECK(run.plan.step_sent().messages > in_one.messages);
    check_counts(run, world);
  }
}

TEST_CASE("an engine on other buffers than planned is refused", "[mpi][engine][staged]") {
  Communicator world = test::world();
  if (world.buffers() == MessageBuffers::staged) SKIP("there are no others here");
  RunConfig config = training_config(odd, {1, 1, world.size()});
  config.comm.buffers = "staged";
  RunPlan const plan = plan_run(config, world.rank(), world.topology());
  MemoryLedger ledger;
  auto const make = [&] { Trainer(ExecutionSpace(), world, ledger, config, plan, training_batches(29), 1); };
  CHECK_THROWS_WITH(make(), Catch::Matchers::ContainsSubstring(fmt::format(
                                "planned to be \"staged\", the ranks' are \"{}\"", to_string(world.buffers()))));
}

TEST_CASE("every strategy trains like a single rank, to rounding", "[mpi][engine]") {
  Communicator world = Communicator::world();
  Index const micro_batches = 2 * world.size();
  double alone = 0;
  if (std::optional<Communicator> one = world.first(1)) {
    TrainingRun run(*one, training_config(odd, {1, micro_batches, micro_batches}));
    for (std::int64_t step = 1; step <= 5; ++step) alone = run.trainer.step(step).loss;
  }
  alone = all_gather_values(world, alone).front();
  for (ParallelConfig const& parallel : fast_ones(world.size())) {
    Rank const data = mesh_of(parallel, world.size()).data();
    if (micro_batches % data != 0) continue;
    INFO(describe(parallel));
    RunConfig config = training_config(odd, {1, micro_batches / data, micro_batches});
    config.parallel = parallel;
    TrainingRun run(world, config);
    double loss = 0;
    for (std::int64_t step = 1; step <= 5; ++step) loss = run.trainer.step(step).loss;
    CHECK(std::abs(loss - alone) < 1e-5 * alone); // the order of fp32 additions differs
  }
}

TEST_CASE("ordered mode ends in the same bits for every strategy, bucket, overlap, algorithm and delay",
          "[mpi][engine][ordered]") {
  RecipeName const recipe = GENERATE(RecipeName::fp32, RecipeName::mixed16);
  Communicator world = test::world();
  if ((world.size() & (world.size() - 1)) != 0) return;
  constexpr std::int64_t steps = 4;
  ExecutionSpace const exec;
  RunConfig choices;
  choices.comm.buffers = to_string(world.buffers());
  std::uint64_t expected = 0;
  if (std::optional<Communicator> one = world.first(1))
    expected = run_matrix_row(exec, *one, alone(recipe), choices, steps).value();
  expected = all_gather_values(world, expected).front();
  for (MatrixRow const& row : equivalence_matrix(world.size(), true, world.reaches_neighbours())) {
    if (row.recipe != recipe) continue;
    INFO(trainstone::describe(row, world.size()));
    CHECK(run_matrix_row(exec, world, row, choices, steps) == expected);
  }
}

TEST_CASE("every strategy in 16 bits trains like fp32, as closely as these bits allow", "[mpi][engine][precision]") {
  auto const [storage, scaling] =
      GENERATE(std::pair{Storage::bf16, LossScaling::none}, std::pair{Storage::fp16, LossScaling::dynamic});
  Communicator world = Communicator::world();
  RunConfig config = training_config(odd, {1, 2, 2 * world.size()});
  auto const loss_after = [&](std::int64_t steps) {
    TrainingRun run(world, config);
    double loss = 0;
    for (std::int64_t step = 1; step <= steps; ++step) loss = run.trainer.step(step).loss;
    return loss;
  };
  double const expected = loss_after(8);
  for (ParallelConfig const& parallel : all_strategies(world.size())) {
    Rank const data = mesh_of(parallel, world.size()).data();
    if (config.batch.global % data != 0) continue;
    config.batch.accumulation = config.batch.global / data;
    INFO(to_string(storage) << ' ' << describe(parallel));
    config.precision = {
        .recipe = RecipeName::mixed16, .storage = storage, .loss_scale = scaling, .initial_loss_scale = 1024};
    config.parallel = parallel;
    CHECK(std::abs(loss_after(8) - expected) < 0x1p-8 * expected); // a unit of bf16; measured up to 0.0013
  }
}

TEST_CASE("the order of additions shows in the bits, and the rounding of their sum", "[mpi][engine][ordered]") {
  Communicator world = Communicator::world();
  RunConfig config = training_config(odd, {1, 8 / world.size() > 0 ? 8 / world.size() : 1, 8});
  config.batch.global = config.batch.accumulation * world.size();
  std::uint64_t const fast = hash_after(world, config, 4);
  if ((world.size() & (world.size() - 1)) != 0 || world.size() > 4) return;
  config.parallel.reduction = ReductionMode::ordered;
  CHECK(hash_after(world, config, 4) != fast);   // one by one instead of in a tree
  config.precision.recipe = RecipeName::mixed18; // gradients stay fp32
  std::uint64_t const wide = hash_after(world, config, 4);
  config.precision.recipe = RecipeName::mixed16; // their sum is rounded
  CHECK(hash_after(world, config, 4) != wide);
}

TEST_CASE("a step of any strategy labels everything and stays on its instance", "[mpi][engine]") {
  Communicator world = Communicator::world();
  for (ParallelConfig const& parallel : all_strategies(world.size())) {
    INFO(describe(parallel));
    RunConfig config = training_config(odd, batch_of(parallel, 2, world.size()));
    config.parallel = parallel;
    TrainingRun run(world, config);
    ToolsGuard const guard(run.exec, engine_collectives);
    run.trainer.step(1);
    run.trainer.validate();
    INFO(fmt::format("{}", fmt::join(guard.violations(), "\n")));
    CHECK(guard.violations().empty());
  }
}
