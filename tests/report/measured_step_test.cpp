// Which step of a trace is laid over a predicted one, and which of its instructions are found.

#include "report/measured_step.hpp"

#include "core/error.hpp"
#include "parallel/program/step_programs.hpp"
#include "report/timeline_text.hpp"
#include "support/temporary_folder.hpp"
#include "support/trace_fixture.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <fstream>

using namespace trainstone;
using namespace trainstone::test;
using Catch::Approx;
using Catch::Matchers::ContainsSubstring;

namespace {

ShardPlan plan_of_two(ParallelConfig const& parallel = {.strategy = Strategy::zero, .zero_stage = 3}) {
  GptConfig const model{.layers = 1, .heads = 1, .channels = 4, .context = 4, .vocab = 16};
  return make_shard_plan(parallel, {}, {}, {}, ParameterTable(model, 2), Topology::one_node(2), 0, 1);
}

StepTimeline timeline_of(ShardPlan const& plan) {
  PriceOf const price = [](std::size_t, Instruction const&) { return InstructionPrice{}; };
  return play_step({make_step_program(plan)}, rank_classes(plan.layout.mesh, {0, 0}), price, Entries::yes);
}

} // namespace

TEST_CASE("the step of median length is laid over a prediction, of the class's first rank", "[timeline]") {
  ShardPlan const plan = plan_of_two();
  StepProgram const program = make_step_program(plan);
  TemporaryFolder const folder;
  std::string const path = folder.path() + "/trace.json";
  StepTimeline const timeline = timeline_of(plan);
  ClassTimeline const& one = timeline.classes.front();
  std::vector<std::vector<Segment>> const parts{program.step,   program.update, program.evaluation, program.step,
                                                program.update, program.step,   program.update};
  std::vector<TimelineEvent> first = events_of(plan, parts, {9, 9, 1, 2, 2, 3, 3});
  std::int64_t const end = first.back().end, begin = end - 3000 * std::ssize(one.entries);
  first.push_back({Lane::collective, "over before", begin - 3000, begin});
  first.push_back({Lane::collective, "all_reduce ring", begin + 1000, begin + 3000});
  first.push_back({Lane::collective, "all_gather ring", begin - 1000, begin + 2000}); // under way when the step begins
  first.push_back({Lane::wait, "all_reduce ring", begin, begin + 3000});
  first.push_back({Lane::slot, "slot 0: micro-batch 0", begin, begin + 3000});
  write_trace(path, {first, events_of(plan, parts, {4, 4, 4, 4, 4, 4, 4})}, "fedcba9876543210");
  MeasuredStep const step = read_measured_step(path, timeline, {plan});
  REQUIRE(step.classes.size() == 1);
  MeasuredClass const& measured = step.classes.front();
  auto const instructions = static_cast<double>(one.entries.size());
  CHECK(step.milliseconds == Approx(0.003 * instructions)); // not 0.009, not 0.002
  REQUIRE(measured.entries.size() == one.entries.size());
  for (std::size_t i = 0; i < measured.entries.size(); ++i) {
    INFO(to_string(one.entries[i].instruction, plan));
    CHECK(measured.entries[i].begin == Approx(0.003 * static_cast<double>(i)));
    CHECK(measured.entries[i].milliseconds == Approx(0.003));
  }
  CHECK(step.deck_hash == "fedcba9876543210");
  REQUIRE(measured.collectives.size() == 2);
  CHECK(measured.collectives[0].name == "all_gather ring");
  CHECK(measured.collectives[0].time.begin == Approx(-0.001));
  CHECK(measured.collectives[0].time.milliseconds == Approx(0.003));
  CHECK(measured.collectives[1].time.begin == Approx(0.001));
  std::string const text = timeline_text("zero3", timeline, {plan}, step);
  CHECK_THAT(text, ContainsSubstring("measured step ") && ContainsSubstring("  reduce bucket 0"));
  CHECK_THAT(text,
             ContainsSubstring("collectives, measured\n") && ContainsSubstring("        0.002  all_reduce ring\n"));
}

TEST_CASE("a trace without a step of the program is refused, and so is what is no trace", "[timeline]") {
  ShardPlan const plan = plan_of_two();
  StepProgram const program = make_step_program(plan);
  TemporaryFolder const folder;
  std::string const path = folder.path() + "/trace.json";
  StepTimeline const timeline = timeline_of(plan);
  write_trace(path, {events_of(plan, {program.evaluation}, {1}), {}});
  CHECK_THROWS_AS(read_measured_step(path, timeline, {plan}), InputError);
  CHECK_THROWS_AS(read_measured_step(folder.path() + "/nothing.json", timeline, {plan}), InputError);
}

TEST_CASE("a step ends with the last instruction of its program, also behind the update", "[timeline]") {
  ShardPlan const plan = plan_of_two({.strategy = Strategy::zero, .zero_stage = 1, .overlap = false});
  StepProgram const program = make_step_program(plan);
  TemporaryFolder const folder;
  std::string const path = folder.path() + "/trace.json";
  write_trace(path, {events_of(plan, {program.step, program.update}, {1, 1}), {}});
  StepTimeline const timeline = timeline_of(plan);
  REQUIRE(timeline.classes.front().entries.back().instruction.act == Act::wait); // for the last group's parameters
  CHECK(read_measured_step(path, timeline, {plan}).milliseconds ==
        Approx(0.001 * static_cast<double>(timeline.classes.front().entries.size())));
}

TEST_CASE("a trace of another program is refused", "[timeline]") {
  ShardPlan const plan = plan_of_two(), other = plan_of_two({.strategy = Strategy::ddp});
  StepProgram const program = make_step_program(other);
  TemporaryFolder const folder;
  std::string const path = folder.path() + "/trace.json";
  write_trace(path, {events_of(other, {program.step, program.update}, {1, 1}), {}});
  StepTimeline const timeline = timeline_of(plan);
  CHECK_THROWS_WITH(read_measured_step(path, timeline, {plan}), ContainsSubstring("of another program"));
}

TEST_CASE("a trace of another number of ranks is refused", "[timeline]") {
  ShardPlan const plan = plan_of_two();
  StepProgram const program = make_step_program(plan);
  TemporaryFolder const folder;
  std::string const path = folder.path() + "/trace.json";
  write_trace(path, {events_of(plan, {program.step, program.update}, {1, 1}), {}, {}});
  StepTimeline const timeline = timeline_of(plan);
  CHECK_THROWS_WITH(read_measured_step(path, timeline, {plan}),
                    ContainsSubstring("of 3 ranks, the step is one of 2 ranks"));
}

TEST_CASE("JSON that is no trace is refused by name, whatever it holds", "[timeline]") {
  ShardPlan const plan = plan_of_two();
  StepTimeline const timeline = timeline_of(plan);
  TemporaryFolder const folder;
  std::string const path = folder.path() + "/trace.json";
  for (char const* const text :
       {"{}", "[1]", "[{\"pid\": \"0\"}]", "[{\"pid\": 0, \"ph\": \"X\", \"name\": 3}]", "[{}]"}) {
    std::ofstream(path) << text;
    CHECK_THROWS_AS(read_measured_step(path, timeline, {plan}), InputError);
  }
}
