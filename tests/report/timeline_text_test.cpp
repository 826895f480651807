// A predicted timeline as text and as a picture.

#include "report/timeline_text.hpp"

#include "parallel/program/step_programs.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <algorithm>

using namespace trainstone;
using Catch::Matchers::ContainsSubstring;

namespace {

ShardPlan plan_of(Index micro_batches) {
  GptConfig const model{.layers = 2, .heads = 1, .channels = 4, .context = 4, .vocab = 16};
  return make_shard_plan({.strategy = Strategy::zero, .zero_stage = 3}, {}, {}, {}, ParameterTable(model, 4),
                         Topology::one_node(4), 0, micro_batches);
}

/// Embed, blocks and head take 1 ms, gathers 0.25 ms on the wire.
StepTimeline timeline_of(ShardPlan const& plan) {
  PriceOf const price = [&plan](std::size_t, Instruction const& one) -> InstructionPrice {
    if (one.act == Act::forward || one.act == Act::backward)
      return {plan.parts.unit(one.subject) > 0 ? 500'000 : 1'000'000}; // half a block each
    if (one.act == Act::gather) return {0, {{{Axis::shard}, 0, 250'000}}};
    return {};
  };
  return play_step({make_step_program(plan)}, rank_classes(plan.layout.mesh, {0, 0, 0, 0}), price, Entries::yes);
}

} // namespace

TEST_CASE("a timeline says what each instruction takes, and how long a wait's collective was under way", "[timeline]") {
  ShardPlan const plan = plan_of(1);
  std::string const text = timeline_text("zero3", timeline_of(plan), {plan});
  CHECK_THAT(text, ContainsSubstring("predicted step 8.25 ms: 8 ms of computation, 250 us of communication"));
  CHECK_THAT(text, ContainsSubstring("rank 0 and 3 ranks like it"));
  CHECK_THAT(text, ContainsSubstring(
                       "       0.000        0.250  wait for gather root in slot 0, under way from 0.000 to 0.250"));
  CHECK_THAT(text, ContainsSubstring("       0.250        1.000  forward embed, micro-batch 0"));
}

TEST_CASE("micro-batches that are alike are one line each", "[timeline]") {
  ShardPlan const plan = plan_of(100);
  CHECK_THAT(timeline_text("zero3", timeline_of(plan), {plan}), ContainsSubstring("stands for 9"));
}

TEST_CASE("a picture of a timeline has a bar for everything that takes time", "[timeline]") {
  ShardPlan const plan = plan_of(1);
  std::string const svg = timeline_svg("zero3 <4>", timeline_of(plan), {plan});
  auto const count = [&](std::string const& what) {
    int found = 0;
    for (std::size_t at = svg.find(what); at != std::string::npos; at = svg.find(what, at + 1)) ++found;
    return found;
  };
  CHECK_THAT(svg, ContainsSubstring("zero3 &lt;4&gt;"));
  CHECK(count("<rect class=\"forward\"") == 6 + 1); // embed, both halves of two blocks, head; and the key
  CHECK(count("<rect class=\"backward\"") == 6 + 1);
  CHECK(count("<rect class=\"wait\"") == 1 + 1);
  CHECK(count("<rect class=\"collective\"") == 6 + 1); // gathers of root twice, and of each block twice
}

TEST_CASE("a measured step is drawn below the predicted one in the same lanes, to the same scale", "[timeline]") {
  ShardPlan const plan = plan_of(1);
  StepTimeline const timeline = timeline_of(plan); // 8.25 ms
  ClassTimeline const& one = timeline.classes.front();
  MeasuredStep measured{"", 16.5, {{std::vector<MeasuredTime>(one.entries.size()), {{"<ring>", {-1, 3}}}}}};
  auto const forward =
      std::ranges::find(one.entries, Act::forward, [](auto const& entry) { return entry.instruction.act; });
  measured.classes[0].entries[static_cast<std::size_t>(forward - one.entries.begin())] = {8.25, 4.125};
  std::string const svg = timeline_svg("zero3", timeline, {plan}, measured);
  CHECK_THAT(svg, ContainsSubstring(">rank 0, measured<") && ContainsSubstring(">collectives, measured<"));
  // a step of 16.5 ms is 1000 pixels wide, from 214 on: half of them are before this bar, and a quarter is its own
  CHECK_THAT(svg,
             ContainsSubstring("<rect class=\"forward\" x=\"714.00\" y=\"178.0\" width=\"250.00\" height=\"18\"><title>"
                               "forward embed, micro-batch 0: 4.125 ms measured</title>"));
  // what was under way when the step began is drawn from there on
  CHECK_THAT(svg, ContainsSubstring(
                      "<rect class=\"collective\" x=\"214.00\" y=\"200.0\" width=\"121.21\" height=\"18\"><title>"
                      "&lt;ring&gt;: 3 ms measured</title>"));
}

TEST_CASE("the style of a picture is its own in a page of many", "[timeline]") {
  ShardPlan const plan = plan_of(1);
  std::string const svg = timeline_svg("zero3", timeline_of(plan), {plan});
  CHECK_THAT(svg, ContainsSubstring("<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"timeline\""));
  std::size_t const begin = svg.find("<style>") + 7, end = svg.find("</style>");
  std::string const rules = svg.substr(begin, end - begin);
  for (std::size_t at = 0; at < rules.size(); at = rules.find('}', at) + 1)
    CHECK(rules.compare(at, 10, ".timeline ") == 0);
}
