// The explanation of a pipeline as text, as JSON and as a picture.

#include "report/pipeline_text.hpp"

#include "support/pipelines.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

using namespace trainstone;
using Catch::Matchers::ContainsSubstring;

namespace {

PipelineExplanation explanation_of(std::string_view schedule, PipelineShape const& shape, ChunkPrice const& stage,
                                   Ticks message = 0) {
  return explain_program(std::string(schedule), "a meaning", program_of(schedule, shape),
                         equal_prices(shape, stage, message), 1);
}

int count(std::string const& text, std::string const& what) {
  int found = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++found;
  return found;
}

} // namespace

TEST_CASE("three stages wait in six cells of each direction, whatever the number of micro-batches", "[pipeline]") {
  for (auto const& [micro_batches, cells] : {std::pair(1, 9), std::pair(2, 12), std::pair(3, 15)}) {
    std::string const text = pipeline_text(explanation_of("gpipe", {3, micro_batches, 1}, {1, 1}));
    INFO(text);
    for (char const* const direction : {"forward", "backward"})
      CHECK_THAT(text, ContainsSubstring(fmt::format("  {}: 6 of {} cells of a micro-batch", direction, cells)));
    CHECK(count(text, "wait  ") + count(text, "wait\n") == 12);
    CHECK_THAT(text, ContainsSubstring(fmt::format("waiting: 12 of {} cells", 2 * cells)));
  }
  CHECK_THAT(pipeline_text(explanation_of("naive", {3, 1, 1}, {1, 2})),
             ContainsSubstring("  backward: 6 of 9 cells of a micro-batch (66.7 %)"));
}

TEST_CASE("the grid shows what every stage does in every cell", "[pipeline]") {
  std::string const text = pipeline_text(explanation_of("1f1b", {2, 2, 1}, {1, 2}));
  CHECK_THAT(text, ContainsSubstring("  stage 0  F0    F1  wait  wait  B0  B0  wait  B1    B1\n"
                                     "  stage 1  wait  F0  B0    B0    F1  B1  B1    wait  wait\n"));
  CHECK_THAT(text, ContainsSubstring("time 9; no order takes less than 9: gap 0 %"));
  CHECK_THAT(text, ContainsSubstring("2 stages x time = 18: computing 12 + unavoidable 6 + imbalance 0 + order 0"));
  CHECK_THAT(pipeline_text(explanation_of("interleaved", {2, 2, 2}, {2, 4})), ContainsSubstring("B1.1  B1.1"));
  CHECK_THAT(pipeline_text(explanation_of("1f1b", {2, 2, 1}, {100, 200}, 1)),
             ContainsSubstring("A cell is 100 of time, without messages.") &&
                 ContainsSubstring("4 messages of 1; nothing hides 2 of their time"));
  CHECK_THAT(pipeline_text(explanation_of("naive", {1, 1, 1}, {1, 2})),
             ContainsSubstring("on 1 stage, 1 micro-batch:"));
}

TEST_CASE("times too unlike for a grid have none", "[pipeline]") {
  PipelineShape const shape{2, 2, 1};
  PipelinePrices prices = equal_prices(shape, {101, 203});
  prices.chunks[0][0] = {97, 211};
  prices.head = 3;
  std::string const text = pipeline_text(explain_program("1f1b", "a meaning", program_of("1f1b", shape), prices, 1));
  CHECK_THAT(text, ContainsSubstring("forward 97 101, backward 211 203, head 3"));
  CHECK_THAT(text, ContainsSubstring("cells per stage and is left out"));
  CHECK(count(text, "closed forms") == 0);
}

TEST_CASE("a search says what it has proved", "[pipeline]") {
  PipelineShape const shape{3, 4, 1};
  PipelineExplanation const schedule = explanation_of("1f1b", shape, {1, 2});
  auto const text = [&](Index slots) {
    PipelineSearchResult const found = search_pipeline_order(shape, schedule.prices, {.slots = slots});
    return pipeline_text(explain_search(schedule, found, slots));
  };
  CHECK_THAT(text(0), ContainsSubstring("with any number of slots takes 18 without messages: no order is faster. 1f1b "
                                        "takes 18 with 3 slots"));
  CHECK_THAT(text(2), ContainsSubstring(
                          "with at most 2 slots takes 21 without messages: no order with at most 2 slots is faster"));
}

TEST_CASE("JSON has the instructions of all stages", "[pipeline]") {
  PipelineExplanation const explanation = explanation_of("1f1b", {3, 4, 1}, {10, 20}, 1);
  auto const json = nlohmann::json::parse(pipeline_json(explanation));
  CHECK(json["time"] == explanation.timeline.time);
  CHECK(json["formulas"]["time"] == 180);
  CHECK(json["messages"] == 16);
  CHECK(json["exposed"] == explanation.exposed);
  REQUIRE(json["programs"].size() == 3);
  auto const& instructions = json["programs"][1]["instructions"];
  CHECK(instructions.size() == explanation.program.stages[1].instructions.size());
  CHECK(instructions[0] == nlohmann::json{{"act", "receive"},
                                          {"kind", "activation"},
                                          {"micro_batch", 0},
                                          {"chunk", 0},
                                          {"input", 0},
                                          {"begin", 0},
                                          {"end", 0}});
}

TEST_CASE("a table has a line per pipeline", "[pipeline]") {
  std::string const table = pipeline_table(explanation_of("gpipe", {2, 2, 1}, {1, 2}),
                                           {pipeline_row(explanation_of("gpipe", {2, 2, 1}, {1, 2})),
                                            pipeline_row(explanation_of("gpipe", {4, 8, 1}, {1, 2}))});
  CHECK(count(table, "\n") == 5);
  CHECK_THAT(table, ContainsSubstring("27.3 %"));
}

TEST_CASE("a picture has a bar per operation, and a line per message that takes time", "[pipeline]") {
  std::string const svg = pipeline_svg(explanation_of("zb-h1", {3, 4, 1}, {10, 10, 10}, 1));
  for (char const* const look : {"forward", "backward", "weights"})
    CHECK(count(svg, fmt::format("<rect class=\"{}\"", look)) == 3 * 4 + 1); // and the key
  CHECK(count(svg, "<line class=\"message\"") == 2 * 4 * 2);
  CHECK(count(svg, "class=\"slots\"") > 4);
  CHECK(count(pipeline_svg(explanation_of("1f1b", {3, 4, 1}, {1, 2})), "<line class=\"message\"") == 0);
}
