// Servers that update unit by unit: the programs of workers and servers are proved, every instruction that is left out
// or comes too early is missed. And when workers push that do not wait for each other.

#include "parallel/plan/engine_memory.hpp"
#include "parallel/plan/parallel_problems.hpp"
#include "parallel/plan/strategies.hpp"
#include "support/broken_steps.hpp"

#include <catch2/generators/catch_generators.hpp>

#include <algorithm>

using namespace trainstone;
using namespace trainstone::test;

namespace {

ParallelConfig by_priority(std::int64_t servers, double slice_bytes, ReductionMode reduction = ReductionMode::ordered) {
  return {.strategy = Strategy::parameter_server,
          .servers = servers,
          .server_schedule = ServerSchedule::priority,
          .server_slice_bytes = slice_bytes,
          .reduction = reduction};
}

std::vector<ShardPlan> plans_of(ParallelConfig const& parallel, Rank ranks, Index micro_batches, Index layers = 2,
                                GptOptions const& options = {}) {
  GptConfig const model{.layers = layers, .heads = 1, .channels = 16, .context = 4, .vocab = 16};
  ParameterTable const table(model, mesh_of(parallel, ranks).parts());
  std::vector<ShardPlan> plans;
  for (Rank rank = 0; rank < ranks; ++rank)
    plans.push_back(
        make_shard_plan(parallel, {}, {}, {}, table, Topology::one_node(ranks), rank, micro_batches, options));
  return plans;
}

std::vector<Instruction> step_of(StepProgram const& program) {
  std::vector<Instruction> all;
  for_each_instruction(program.step, [&](Instruction const& one) { all.push_back(one); });
  return all;
}

} // namespace

TEST_CASE("the programs of workers and of servers that update unit by unit are proved",
          "[parallel][program][servers]") {
  Rank const servers = GENERATE(1, 2, 3), workers = GENERATE(1, 2, 3, 4, 8);
  Index const micro_batches = GENERATE(1, 2, 4, 7);
  for (ReductionMode const reduction : {ReductionMode::ordered, ReductionMode::fast})
    for (double const slice : {0.0, 1024.0, 4096.0})
      for (GptOptions const& options : {GptOptions{}, GptOptions{.recompute = {Recompute::full}, .loss_chunks = 4}}) {
        ParallelConfig const parallel = by_priority(servers, slice, reduction);
        if (find_parallel_problem(parallel, {}, workers, micro_batches)) continue;
        std::vector<ShardPlan> const plans = plans_of(parallel, workers + servers, micro_batches, 3, options);
        std::vector<StepProgram> programs;
        for (ShardPlan const& plan : plans) programs.push_back(make_step_program(plan));
        std::optional<StepFinding> const found = find_step_defect(plans, programs);
        INFO((found ? found->message : ""));
        CHECK(!found);
      }
}

TEST_CASE("a server waits for units in the order of the next forward, and agrees behind the first one",
          "[parallel][program][servers]") {
  std::vector<ShardPlan> const plans = plans_of(by_priority(1, 1024), 3, 2);
  std::vector<Instruction> const step = step_of(make_step_program(plans.back()));
  std::vector<Index> updated;
  std::size_t pushes = 0, agreed = 0;
  for (std::size_t i = 0; i < step.size(); ++i) {
    if (step[i].act == Act::update) updated.push_back(step[i].subject);
    if (step[i].act == Act::reduce) pushes = i + 1;
    if (step[i].act == Act::agree) agreed = updated.size();
  }
  CHECK(updated == std::vector<Index>{0, 1, 2});
  CHECK(pushes == static_cast<std::size_t>(plans.back().reductions.buckets.buckets())); // before it waits for any
  CHECK(agreed == 1);
  CHECK(step.back().act == Act::wait);
  CHECK(make_step_program(plans.back()).update.empty());
}

TEST_CASE("whatever of a step by priority is left out is missed", "[parallel][program][servers][defects]") {
  Steps const right(plans_of(by_priority(1, 4096), 3, 2)); // of one micro-batch a fold is nothing
  for (std::size_t rank : {std::size_t{0}, std::size_t{2}})
    for (std::size_t i = 0; i < right.programs[rank].step.back().instructions.size(); ++i) {
      Steps broken = right;
      std::vector<Instruction>& list = broken.programs[rank].step.back().instructions;
      Instruction const left_out = list[i];
      list.erase(list.begin() + static_cast<std::ptrdiff_t>(i));
      INFO("rank " << rank << ", " << to_string(left_out, right.plans[rank]));
      CHECK(find_step_defect(broken.plans, broken.programs));
    }
}

TEST_CASE("what comes too early or twice in a step by priority is found by its name",
          "[parallel][program][servers][defects]") {
  Steps const right(plans_of(by_priority(1, 4096), 3, 1));
  auto const update = [](Index unit) {
    return [=](Instruction const& one) { return one.act == Act::update && one.subject == unit; };
  };
  auto const wait = [](Act started) {
    return [=](Instruction const& one) { return one.act == Act::wait && one.started == started; };
  };
  auto const swap = [](Steps& steps, Rank rank, Steps::Same const& one, Steps::Same const& other) {
    std::swap(steps.at(rank, one), steps.at(rank, other));
  };
  Steps early = right;
  swap(early, 2, update(0), wait(Act::reduce)); // before its last bucket has come
  check_found(early, StepDefect::undefined_read, "is still being reduced");
  Steps twice = right;
  twice.at(2, update(1)).subject = 0;
  check_found(twice, StepDefect::written_while_used, "\"update root\"");
  Steps whole = right;
  whole.at(2, update(1)).subject = Instruction::none;
  check_found(whole, StepDefect::malformed, "\"update\": the plan has other updates");
  Steps old = right; // a worker that reads what it has before it is new
  swap(old, 0, wait(Act::publish), is(Act::forward, 0));
  check_found(old, StepDefect::undefined_read, "the parameters of root are still on their way");
  Steps unsent = right; // overwrites what is still being sent
  unsent.drop(0, wait(Act::reduce), 1);
  check_found(unsent, StepDefect::written_while_used, "is still being reduced");
}

TEST_CASE("slices of pulls take every element of a unit once, and servers send what workers receive",
          "[parallel][servers]") {
  Rank const servers = GENERATE(1, 2, 3), workers = GENERATE(1, 2);
  for (double const slice : {1024.0, 3000.0, 4096.0, 1e6}) {
    std::vector<ShardPlan> const plans = plans_of(by_priority(servers, slice), workers + servers, 1);
    ShardPlan const& worker = plans.front();
    for (std::size_t unit = 0; unit < worker.layout.units.size(); ++unit) {
      std::vector<int> taken(static_cast<std::size_t>(worker.layout.units[unit].padded), 0);
      for (UnitGather const& gather : worker.gathers.of_unit[unit])
        for (Index i = 0; i < gather.planned.problem.elements(); ++i)
          ++taken[static_cast<std::size_t>(gather.pieces.place(i))];
      CHECK(std::ranges::count(taken, 1) == std::ssize(taken));
      for (ShardPlan const& plan : plans) {
        std::vector<UnitGather> const &mine = plan.gathers.of_unit[unit], &theirs = worker.gathers.of_unit[unit];
        REQUIRE(mine.size() == theirs.size());
        for (std::size_t i = 0; i < mine.size(); ++i)
          CHECK(mine[i].planned.problem.partition.offsets() == theirs[i].planned.problem.partition.offsets());
      }
    }
  }
}

TEST_CASE("a server that receives all slices at once has room for each, as large as it is", "[parallel][servers]") {
  constexpr Rank workers = 4;
  ShardPlan const server = plans_of(by_priority(1, 4096), workers + 1, 1).back();
  Index room = 0;
  for (Index const elements : reduction_scratches(server.reductions, server.layout)) room += elements;
  Index const table = server.layout.groups.front().padded; // in two parts, in ordered mode
  CHECK(room == (workers - 1) * (server.layout.elements() + table));
}

TEST_CASE("a worker that no other one waits for pushes when its backward has ended", "[parallel][program][servers]") {
  for (bool const overlap : {true, false}) {
    ParallelConfig const parallel{.strategy = Strategy::parameter_server,
                                  .server_mode = ServerMode::async,
                                  .bucket_bytes = 1024,
                                  .first_bucket_bytes = 1024,
                                  .overlap = overlap};
    std::vector<ShardPlan> const plans = plans_of(parallel, 2, 3); // a worker and its server
    Steps const steps(plans);
    std::vector<Instruction> const step = step_of(steps.programs.front());
    auto const first_push = std::ranges::find(step, Act::reduce, &Instruction::act);
    CHECK(std::none_of(first_push, step.end(), [](Instruction const& one) { return one.act == Act::backward; }));
    CHECK(std::ranges::count(step, Act::reduce, &Instruction::act) == plans.front().reductions.buckets.buckets());
  }
}
