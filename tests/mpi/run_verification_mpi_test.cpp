// The checks of a run: each passes on the true plan and fails on a plan that is wrong in one number.

#include "train/verification/run_verification.hpp"

#include "comm/algorithms/registry.hpp"
#include "comm/schedule/expected_results.hpp"
#include "core/error.hpp"
#include "core/host_copy.hpp"
#include "core/launch.hpp"
#include "support/training_run.hpp"
#include "train/plan/collective_cases.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <cstdlib>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

using namespace trainstone;
using namespace trainstone::test;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;

namespace {

namespace Tools = Kokkos::Tools::Experimental;

CountedRun run_two_steps(TrainingRun& run) {
  counters() = {};
  comm_counters() = {};
  for (std::int64_t step = 1; step <= 2; ++step) run.trainer.step(step);
  run.trainer.validate();
  return {0, 2, 0, 0, 1, 2, counters(), comm_counters(), run.ledger.high_water()};
}

/// Element 3 of the values becomes what `change` makes of it.
template <class Change>
void change_one(Vector<float> values, Change const& change) {
  Vector<float> const element(values.data() + 3, 1);
  std::vector<float> changed = copy_to_host<float>(ExecutionSpace(), element, "trainstone::test: one is changed");
  changed[0] = change(changed[0]);
  copy_from_host<float>(ExecutionSpace(), changed, element, "trainstone::test: one is changed");
}

/// While it lives, one value of this rank is off by one when a collective is tried: in try `number` of those that have
/// data, at `place` of the last piece. A try copies its data from the host, starts the collective, and copies as many
/// pieces back. Kokkos Tools show the copies. They take plain functions, so there are static members.
class SpoiledTry {
public:
  SpoiledTry(std::size_t number, Index place)
      : m_before(Tools::get_callbacks()), m_spoiling(delay_point(), [place](char const* label) {
          if (std::string_view(label) == "trainstone::comm::start") on_start(place);
        }) {
    s_tries_before = number;
    s_pieces = s_pieces_to_return = 0;
    Tools::set_begin_deep_copy_callback(on_copy);
    Tools::set_begin_fence_callback(on_fence);
  }
  SpoiledTry(SpoiledTry const&) = delete;
  SpoiledTry& operator=(SpoiledTry const&) = delete;
  ~SpoiledTry() { Tools::set_callbacks(m_before); }

private:
  static void on_copy(Kokkos_Profiling_SpaceHandle /*space*/, char const* /*label*/, void const* target,
                      Kokkos_Profiling_SpaceHandle /*space*/, char const* /*label*/, void const* /*source*/,
                      std::uint64_t /*bytes*/) {
    s_target = static_cast<float*>(const_cast<void*>(target));
  }
  static void on_fence(char const* reason, std::uint32_t /*device*/, std::uint64_t* /*id*/) {
    if (std::string_view(reason) != "trainstone::check::collectives") return;
    if (s_pieces_to_return > 0)
      --s_pieces_to_return;
    else
      ++s_pieces;
  }
  static void on_start(Index place) {
    if (s_pieces == 0) return;
    if (s_tries_before-- == 0) s_target[place] += 1;
    s_pieces_to_return = std::exchange(s_pieces, 0);
  }

  static inline float* s_target = nullptr; ///< of the latest copy
  static inline std::size_t s_tries_before = 0, s_pieces = 0, s_pieces_to_return = 0;

  Tools::EventSet m_before;
  DelayPoint::Scoped m_spoiling;
};

} // namespace

TEST_CASE("memory, message and FLOP checks pass on the plan and fail on a plan with one number changed",
          "[mpi][checks]") {
  Communicator world = Communicator::world();
  TrainingRun run(world, training_config({2, 3, 12, 11, 29}, {1, 2, 2 * world.size()}));
  CountedRun const counted = run_two_steps(run);
  CHECK(check_memory(run.exec, world, run.plan, counted).passed);
  CHECK(check_messages(run.exec, world, run.plan, counted).passed);
  CHECK(check_flops(run.exec, world, run.plan, counted).passed);

  RunPlan memory = run.plan;
  memory.memory.front().bytes += 64;
  CHECK_FALSE(check_memory(run.exec, world, memory, counted).passed);
  RunPlan message = run.plan;
  message.sent.push_back({"one message more", {.messages = 1}});
  CHECK_FALSE(check_messages(run.exec, world, message, counted).passed);
  RunPlan control = run.plan;
  control.control.push_back({"8 bytes more", {.bytes = 8}});
  CHECK_FALSE(check_messages(run.exec, world, control, counted).passed);
  RunPlan gemm = run.plan;
  gemm.step_flops.gemm += 2;
  CHECK_FALSE(check_flops(run.exec, world, gemm, counted).passed);
  RunPlan kernel = run.plan;
  kernel.update_launches += 1;
  CHECK_FALSE(check_flops(run.exec, world, kernel, counted).passed);
  RunPlan attention = run.plan;
  attention.evaluation_flops.attention -= 1;
  CHECK_FALSE(check_flops(run.exec, world, attention, counted).passed);
}

TEST_CASE("what was sent before the first step is compared with the plan, as often as the state was set",
          "[mpi][checks]") {
  Communicator world = Communicator::world();
  RunConfig config = training_config({1, 1, 8, 5, 29}, {1, 1, world.size()});
  config.parallel.strategy = Strategy::naive;
  comm_counters() = {};
  TrainingRun run(world, config);
  Traffic const start = comm_counters().total(Purpose::start);
  CountedRun counted = run_two_steps(run);
  counted.start = start;
  CHECK(check_messages(run.exec, world, run.plan, counted).passed);
  RunPlan more = run.plan;
  more.start.push_back({"one message more", {.messages = 1}});
  CHECK_FALSE(check_messages(run.exec, world, more, counted).passed);
  counted.starts = 2;
  CHECK(check_messages(run.exec, world, run.plan, counted).passed == (world.size() == 1));
  counted.start += start;
  CHECK(check_messages(run.exec, world, run.plan, counted).passed);
}

TEST_CASE("a plan that is wrong on one rank alone fails the check on all", "[mpi][checks]") {
  Communicator world = Communicator::world();
  TrainingRun run(world, training_config({1, 1, 8, 5, 29}, {1, 1, world.size()}));
  CountedRun const counted = run_two_steps(run);
  RunPlan wrong_on_last = run.plan;
  if (world.rank() == world.size() - 1) wrong_on_last.step_flops.gemm += 2;
  CHECK_FALSE(check_flops(run.exec, world, wrong_on_last, counted).passed);
}

TEST_CASE("one bit of one parameter on one rank makes the replicas disagree", "[mpi][checks]") {
  Communicator world = Communicator::world();
  TrainingRun run(world, training_config({1, 1, 8, 5, 29}, {1, 1, world.size()}));
  run.trainer.step(1);
  CHECK(check_replicas(run.exec, world, run.trainer).passed);
  auto const flip = [](float value) { return Kokkos::bit_cast<float>(Kokkos::bit_cast<std::uint32_t>(value) ^ 1u); };
  if (world.rank() == world.size() - 1) change_one(run.trainer.engine().whole_parameters(0).as<float>(), flip);
  CHECK(check_replicas(run.exec, world, run.trainer).passed == (world.size() == 1));
}

TEST_CASE("a training in which replicas differ ends on all ranks, with the step and the ranks",
          "[mpi][checks][replicas]") {
  Communicator world = Communicator::world();
  Rank const last = world.size() - 1;
  auto const difference_of = [&](ParallelConfig const& parallel, auto const& parameters_of) {
    RunConfig config = training_config({1, 1, 8, 5, 29}, {1, 1, world.size()});
    config.parallel = parallel;
    TrainingRun run(world, config);
    run.trainer.step(1);
    CHECK_NOTHROW(run.trainer.require_equal_replicas(1));
    run.trainer.step(2);
    run.trainer.finish();
    if (world.rank() == last) change_one(parameters_of(run.trainer.engine()), [](float value) { return value + 1; });
    try {
      run.trainer.require_equal_replicas(2);
    } catch (CollectiveError const& error) {
      CHECK(error.code() == ExitCode::verification_failed);
      return std::string(error.what());
    }
    return std::string("none");
  };
  auto const whole = [](ShardedEngine& engine) { return engine.whole_parameters(0).as<float>(); };
  auto const share = [](ShardedEngine& engine) { return engine.parameter_share(0).as<float>(); };
  for (ParallelConfig const& parallel : {ParallelConfig{}, {.strategy = Strategy::zero, .zero_stage = 1}}) {
    std::string const found = difference_of(parallel, whole);
    if (last == 0) {
      CHECK(found == "none");
      continue;
    }
    CHECK_THAT(found, StartsWith("step 2: parameters differ between ranks: "));
    CHECK_THAT(found, ContainsSubstring(fmt::format("rank {}: hash ", last)));
  }
  if (world.size() != 4) return;
  // a shard is part of the hash of its whole group
  CHECK_THAT(difference_of({.strategy = Strategy::hsdp, .shard_group = 2}, share),
             ContainsSubstring("ranks 0, 1: hash ") && ContainsSubstring("ranks 2, 3: hash "));
  // what one rank alone holds has nothing to be compared with
  CHECK(difference_of({.strategy = Strategy::zero, .zero_stage = 3}, share) == "none");
}

TEST_CASE("collectives on integers are exact", "[mpi][checks]") {
  Communicator world = test::world();
  GptConfig const model{1, 1, 8, 5, 29};
  ParameterTable const table(model, world.size());
  auto const check = [&](ParallelConfig const& parallel, CommConfig comm) {
    comm.buffers = to_string(world.buffers());
    ShardPlan const plan = make_shard_plan(parallel, {}, {}, comm, table, world.topology(), world.rank(), 1);
    return check_collectives(ExecutionSpace(), world, plan).passed;
  };
  for (Algorithm const algorithm : unlimited_algorithms_of(Collective::all_reduce)) {
    INFO(to_string(algorithm));
    if (!world.reaches_neighbours() && find_algorithm(Collective::all_reduce, algorithm).uses_shared_memory()) continue;
    CHECK(check({}, {.allreduce = std::string(to_string(algorithm))}));
  }
  for (std::string const name : {"ring", "direct", "circulant", "recursive", "shared"}) {
    INFO(name);
    if (!world.reaches_neighbours() && name == "shared") continue;
    CHECK(check({.strategy = Strategy::zero, .zero_stage = 1}, {.reduce_scatter = name, .all_gather = name}));
  }
  if (world.reaches_neighbours())
    CHECK(check({.strategy = Strategy::zero, .zero_stage = 1}, {.all_gather = "shared_push"}));
  ParallelConfig const whole_groups{
      .strategy = Strategy::zero, .zero_stage = 1, .partition = StatePartition::inter_layer};
  for (std::string const name : {"binomial", "linear", "shared"}) {
    INFO(name);
    if (!world.reaches_neighbours() && name == "shared") continue;
    CHECK(check(whole_groups, {.reduce = name, .broadcast = name}));
  }
  if (world.reaches_neighbours()) CHECK(check(whole_groups, {.broadcast = "shared_push"}));
}

TEST_CASE("one wrong value on one rank, in any try of a collective, fails the check on all", "[mpi][checks]") {
  skip_on_devices("the host spoils what kernels work on");
  Communicator world = test::world();
  ParameterTable const table({1, 1, 8, 5, 29}, world.size());
  CommConfig const messages{.buffers = std::string(to_string(world.buffers()))}; // ring and binomial trees
  ParallelConfig const ddp, zero{.strategy = Strategy::zero, .zero_stage = 1};
  ParallelConfig const whole_groups{
      .strategy = Strategy::zero, .zero_stage = 1, .partition = StatePartition::inter_layer};
  for (ParallelConfig const& parallel : {ddp, zero, whole_groups}) {
    ShardPlan const plan = make_shard_plan(parallel, {}, {}, messages, table, world.topology(), world.rank(), 1);
    std::size_t number = 0;
    for (CollectiveCase const& tried : collective_cases(plan)) {
      Problem const& problem = tried.planned.problem;
      if (problem.elements() == 0) continue;
      for (Rank const bad_rank : {0, world.size() - 1}) {
        Range const held = Impl::initially_held(problem, bad_rank);
        if (held.size() == 0) continue;
        INFO(to_string(problem.collective) << " of " << problem.elements() << ", spoiled on rank " << bad_rank);
        std::optional<SpoiledTry> spoiled;
        if (world.rank() == bad_rank) spoiled.emplace(number, tried.pieces.is_contiguous() ? held.begin : 0);
        CHECK(check_collectives(ExecutionSpace(), world, plan).failed());
      }
      ++number;
    }
  }
}

TEST_CASE("the number of ranks is compared with the launcher's, and unknown where none tells", "[mpi][checks]") {
  Communicator const world = Communicator::world();
  struct Variable {
    char const* name;
    std::optional<std::string> before = {};
  };
  std::vector<Variable> variables{{"OMPI_COMM_WORLD_SIZE"}, {"PMI_SIZE"}, {"SLURM_STEP_NUM_TASKS"}};
  for (auto& [name, before] : variables) {
    if (char const* const value = std::getenv(name)) before = value;
    unsetenv(name);
  }
  Check const unknown = check_launch(world);
  CHECK_FALSE(unknown.made);
  CHECK_FALSE(unknown.passed);
  CHECK(unknown.value == world.size());
  for (auto const& variable : variables) {
    setenv(variable.name, std::to_string(world.size()).c_str(), 1);
    CHECK(check_launch(world).passed);
    setenv(variable.name, std::to_string(world.size() + 1).c_str(), 1);
    CHECK(check_launch(world).failed());
    unsetenv(variable.name);
  }
  for (auto const& [name, before] : variables)
    if (before) setenv(name, before->c_str(), 1);
}

TEST_CASE("what training sends is tried before it: many pieces, staged messages that are cut, its own types",
          "[mpi][checks]") {
  Communicator world = Communicator::world();
  GptConfig const model{.layers = 3 * world.size(), .heads = 4, .channels = 128, .context = 16, .vocab = 64};
  ParameterTable const table(model, world.size());
  std::vector<std::string> kinds{"staged"};
  if (host_reaches_memory) kinds.emplace_back("host");
  for (std::string const& buffers : kinds) {
    world.use_buffers(resolve_buffers(buffers), ExecutionSpace());
    for (RecipeName const recipe : {RecipeName::fp32, RecipeName::mixed16}) {
      for (std::int64_t const stage : {2, 3}) {
        INFO(buffers << ", " << to_string(recipe) << ", stage " << stage);
        ShardPlan const plan =
            make_shard_plan({.strategy = Strategy::zero, .zero_stage = stage}, {}, {.recipe = recipe},
                            {.buffers = buffers}, table, world.topology(), world.rank(), 1);
        Check const check = check_collectives(ExecutionSpace(), world, plan);
        CHECK(check.passed);
        if (world.size() > 1) CHECK_THAT(check.detail, ContainsSubstring("reduce_scatter ring, all_gather ring"));
      }
    }
  }
}

TEST_CASE("parameters that an update has destroyed are noticed, and so is the held-out loss", "[mpi][checks]") {
  Communicator world = Communicator::world();
  TrainingRun run(world, training_config({1, 1, 8, 5, 29}, {1, 1, world.size()}));
  run.trainer.step(1);
  CHECK(check_finite(run.exec, world, run.trainer).passed);
  auto const poison = [](float) { return std::numeric_limits<float>::quiet_NaN(); };
  if (world.rank() == 0) change_one(run.trainer.engine().whole_parameters(0).as<float>(), poison);
  CHECK_FALSE(check_finite(run.exec, world, run.trainer).passed);
  // every token's row: whichever the held-out batch reads
  Kokkos::deep_copy(run.trainer.engine().whole_parameters(0).as<float>(), std::numeric_limits<float>::quiet_NaN());
  CHECK_THROWS_AS(run.trainer.validate(), CollectiveError);
}
