// Which step of a trace is laid over a predicted one, and which of its instructions are found.

#include "report/measured_step.hpp"

#include "core/error.hpp"
#include "parallel/program/step_programs.hpp"
#include "report/timeline_text.hpp"
#include "result/trace.hpp"
#include "support/temporary_folder.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

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
  return play_step(make_step_program(plan), rank_classes(plan.mesh, {0, 0}), price, Entries::yes);
}

/// Every instruction of the lists takes so many us, one after the other.
std::vector<TimelineEvent> events_of(ShardPlan const& plan, std::vector<std::vector<Segment>> const& parts,
                                     std::vector<std::int64_t> const& microseconds) {
  std::vector<TimelineEvent> events;
  std::int64_t now = 5000;
  for (std::size_t i = 0; i < parts.size(); ++i)
    for_each_instruction(parts[i], [&](Instruction const& one) {
      std::int64_t const end = now + 1000 * microseconds[i];
      events.push_back({Lane::compute, to_string(one, plan), now, end});
      events.push_back({Lane::compute, "trainstone::model::something", now, end});
      now = end;
    });
  return events;
}

void write_trace(std::string const& path, std::vector<std::vector<TimelineEvent>> const& by_rank) {
  TraceFile file(path);
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    TraceText text(static_cast<std::int64_t>(rank), by_rank[rank].size(),
                   [&](std::size_t number) { return by_rank[rank][number]; });
    for (std::string piece = text.next(); !piece.empty(); piece = text.next()) file.add(piece);
  }
  file.finish();
}

} // namespace

TEST_CASE("the step of median length is laid over a prediction, of the class's first rank", "[timeline]") {
  ShardPlan const plan = plan_of_two();
  StepProgram const program = make_step_program(plan);
  TemporaryFolder const folder;
  std::string const path = folder.path() + "/trace.json";
  std::vector<std::vector<Segment>> const parts{program.step,   program.update, program.evaluation, program.step,
                                                program.update, program.step,   program.update};
  write_trace(path, {events_of(plan, parts, {9, 9, 1, 2, 2, 3, 3}), events_of(plan, parts, {4, 4, 4, 4, 4, 4, 4})});
  StepTimeline const timeline = timeline_of(plan);
  ClassTimeline const& one = timeline.classes.front();
  MeasuredStep const step = read_measured_step(path, one, plan);
  auto const instructions = static_cast<double>(one.entries.size());
  CHECK(step.milliseconds == Approx(0.003 * instructions)); // not 0.009, not 0.002
  REQUIRE(step.entries.size() == one.entries.size());
  for (std::size_t i = 0; i < step.entries.size(); ++i) {
    INFO(to_string(one.entries[i].instruction, plan));
    CHECK(step.entries[i].begin == Approx(0.003 * static_cast<double>(i)));
    CHECK(step.entries[i].milliseconds == Approx(0.003));
  }
  std::string const text = timeline_text("zero3", timeline, plan, step);
  CHECK_THAT(text, ContainsSubstring("measured step ") && ContainsSubstring("  reduce bucket 0"));
  CHECK_THAT(timeline_svg("zero3", timeline, plan, step), ContainsSubstring("rank 0, measured"));
}

TEST_CASE("a trace without a step of the program is refused, and so is what is no trace", "[timeline]") {
  ShardPlan const plan = plan_of_two();
  StepProgram const program = make_step_program(plan);
  TemporaryFolder const folder;
  std::string const path = folder.path() + "/trace.json";
  ClassTimeline const one = timeline_of(plan).classes.front();
  write_trace(path, {events_of(plan, {program.evaluation}, {1})});
  CHECK_THROWS_AS(read_measured_step(path, one, plan), InputError);
  CHECK_THROWS_AS(read_measured_step(folder.path() + "/nothing.json", one, plan), InputError);
}

TEST_CASE("a step ends with the last instruction of its program, also behind the update", "[timeline]") {
  ShardPlan const plan = plan_of_two({.strategy = Strategy::zero, .zero_stage = 1, .overlap = false});
  StepProgram const program = make_step_program(plan);
  TemporaryFolder const folder;
  std::string const path = folder.path() + "/trace.json";
  write_trace(path, {events_of(plan, {program.step, program.update}, {1, 1})});
  ClassTimeline const one = timeline_of(plan).classes.front();
  REQUIRE(one.entries.back().instruction.act == Act::wait); // for the last group's parameters
  CHECK(read_measured_step(path, one, plan).milliseconds == Approx(0.001 * static_cast<double>(one.entries.size())));
}

TEST_CASE("a trace of another program is refused", "[timeline]") {
  ShardPlan const plan = plan_of_two(), other = plan_of_two({.strategy = Strategy::ddp});
  StepProgram const program = make_step_program(other);
  TemporaryFolder const folder;
  std::string const path = folder.path() + "/trace.json";
  write_trace(path, {events_of(other, {program.step, program.update}, {1, 1})});
  ClassTimeline const one = timeline_of(plan).classes.front();
  CHECK_THROWS_WITH(read_measured_step(path, one, plan), ContainsSubstring("of another program"));
}
