#include "train/plan/program_proof.hpp"

#include "core/error.hpp"
#include "parallel/plan/strategies.hpp"
#include "parallel/program/step_programs.hpp"
#include "train/plan/run_plan.hpp"

#include <catch2/catch_test_macros.hpp>
#include <fmt/format.h>

#include <algorithm>

using namespace trainstone;

namespace {

constexpr Rank ranks = 4;

ResolvedRun small_run(ParallelConfig const& parallel, Index micro_batches) {
  RunConfig config;
  config.model = {.layers = 2, .heads = 1, .channels = 16, .context = 4, .vocab = 16};
  config.batch = {1, micro_batches, ranks * micro_batches};
  config.parallel = parallel;
  return resolve_run(config, Topology::one_node(ranks));
}

std::string message_of(std::vector<ShardPlan> const& plans, std::vector<StepProgram> const& programs) {
  try {
    require_proved(plans, programs);
  } catch (Error const& error) {
    CHECK(error.code() == ExitCode::internal);
    return error.what();
  }
  return "";
}

} // namespace

TEST_CASE("the programs of small runs of all strategies are played and proved", "[proof]") {
  for (ParallelConfig const& parallel : all_strategies(ranks)) CHECK(prove_programs(small_run(parallel, 2)));
}

TEST_CASE("programs with too many instructions are not played", "[proof]") {
  ResolvedRun const run = small_run({.strategy = Strategy::zero, .zero_stage = 3}, 1'000'000);
  CHECK(!prove_programs(run)); // also at once: a test of so many micro-batches would take minutes
  StepProgram const program = make_step_program(plan_run(run, 0).parallel);
  CHECK(played_instructions(program, ranks) > Index{4} * 1'000'000);
}

TEST_CASE("a wrong program is an internal error that names rank and instruction", "[proof]") {
  ResolvedRun const run = small_run({.strategy = Strategy::zero, .zero_stage = 3}, 2);
  std::vector<ShardPlan> plans;
  std::vector<StepProgram> programs;
  for (Rank rank = 0; rank < ranks; ++rank) {
    plans.push_back(plan_run(run, rank).parallel);
    programs.push_back(make_step_program(plans.back()));
  }
  CHECK(message_of(plans, programs).empty());
  std::vector<Instruction>& broken = programs[2].step.at(1).instructions;
  auto const gather = std::ranges::find_if(
      broken, [](Instruction const& one) { return one.act == Act::wait && one.started == Act::gather; });
  REQUIRE(gather != broken.end());
  std::string const unit = plans[2].layout.units[static_cast<std::size_t>(gather->subject)].name;
  Index const slot = gather->slot;
  auto const reader = std::find_if(broken.erase(gather), broken.end(), [&](Instruction const& one) {
    return (one.act == Act::forward || one.act == Act::backward) && one.slot == slot;
  });
  REQUIRE(reader != broken.end());
  CHECK(message_of(plans, programs) ==
        fmt::format("the step program of rank 2 is wrong, which is an error of this program: undefined read: rank 2: "
                    "\"{}\": the parameters of {} are still on their way",
                    to_string(*reader, plans[2]), unit));
}
