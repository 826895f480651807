// The taught rule on the models of the lectures: which question decides, and the least degree that fits.

#include "advice/rule.hpp"

#include "advice/largest_fit.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>

using namespace trainstone;
using Catch::Approx;

namespace {

/// State alone counts: activations of one sample of one token.
DeckOnRanks model(std::string const& shape) {
  std::string const text = shape + R"(
data.source = "synthetic"
data.steps = 4
data.sequence = 1
batch.micro = 1
batch.global = 1
precision.recipe = "mixed16"
parallel.bucket = "1 MiB"
kernels.gemm = "kokkos"
)";
  return {text, {}, 1, 1};
}

DeckOnRanks preset(std::string const& name) { return model("model.preset = \"" + name + "\"\n"); }

constexpr std::uint64_t gigabytes(std::uint64_t number) { return number * 1'000'000'000; }

RuleAdvice rule(DeckOnRanks const& asked, std::uint64_t memory) {
  RuleAdvice const advice = apply_rule(asked, {1, 1}, memory);
  if (advice.way) { // estimate accepts the answer, and it fits
    DeckOnRanks answer = asked.with(advice.keys);
    answer.ranks = advice.way->ranks();
    CHECK(needed_memory(answer) == advice.needed);
    CHECK(advice.needed <= memory);
  }
  return advice;
}

} // namespace

TEST_CASE("a model that one card holds is trained data parallel", "[advice][rule]") {
  for (auto const& [name, memory] : {std::pair("bert-large", 16), std::pair("gpt2-xl", 32)}) {
    RuleAdvice const advice = rule(preset(name), gigabytes(static_cast<std::uint64_t>(memory)));
    CHECK(advice.answer == RuleAnswer::data);
    CHECK(advice.alone);
    REQUIRE(advice.way);
    CHECK(*advice.way == Way{});
  }
  CHECK(static_cast<double>(rule(preset("gpt2-xl"), gigabytes(32)).model_bytes) == Approx(24.9e9).epsilon(0.01));
}

TEST_CASE("a model that one card does not hold is a pipeline of the least number of stages", "[advice][rule]") {
  struct Case {
    char const* name;
    std::uint64_t memory;
    std::int64_t stages;
  };
  for (Case const& one :
       {Case{"gpt2-xl", 16, 2}, Case{"turing-nlg", 32, 10}, Case{"gpt3-6.7b", 32, 4}, Case{"gpt3-175b", 80, 48}}) {
    INFO(one.name);
    RuleAdvice const advice = rule(preset(one.name), gigabytes(one.memory));
    CHECK(advice.answer == RuleAnswer::pipeline);
    CHECK(advice.alone);
    REQUIRE(advice.way);
    CHECK((advice.way->tensor == 1 && advice.way->pipeline == one.stages));
  }
  CHECK(static_cast<double>(rule(preset("turing-nlg"), gigabytes(32)).model_bytes) == Approx(274.8e9).epsilon(0.01));
}

TEST_CASE("GPT-3 on cards of 32 GB needs tensor ranks and stages together", "[advice][rule]") {
  RuleAdvice const advice = rule(preset("gpt3-175b"), gigabytes(32));
  CHECK(advice.operation.name == "token table");
  CHECK(advice.operation.parameters == 50257LL * 12288);
  CHECK(static_cast<double>(advice.operation.state) == Approx(9.88e9).epsilon(0.001));
  CHECK(advice.answer == RuleAnswer::pipeline);
  CHECK_FALSE(advice.alone);
  REQUIRE(advice.way);
  CHECK((advice.way->tensor == 16 && advice.way->pipeline == 6));
  CHECK(advice.with_ends == 98); // a stage for the embedding, one for each block, and one for the head
  CHECK(rule_text(advice, gigabytes(32)).find("not enough") != std::string::npos);
}

TEST_CASE("an operation that one card does not hold is cut among tensor ranks", "[advice][rule]") {
  DeckOnRanks const asked = model("model.layers = 96\nmodel.heads = 96\nmodel.channels = 12288\nmodel.context = 8\n"
                                  "model.vocab = 2000000\n");
  RuleAdvice const advice = rule(asked, gigabytes(80));
  CHECK(static_cast<double>(advice.operation.state) == Approx(393.2e9).epsilon(0.001));
  CHECK(advice.answer == RuleAnswer::tensor);
  CHECK(advice.alone);
  REQUIRE(advice.way);
  CHECK((advice.way->pipeline == 1 && advice.way->tensor == 48)); // 3176 GB / 80 GB is 39.7
}

TEST_CASE("an operation is its state, and the input and output of one sample", "[advice][rule]") {
  DeckOnRanks asked = preset("gpt2");
  asked = asked.with({"data.sequence=100", "precision.recipe=mixed20"});
  RunConfig const config = asked.deck().config;
  for (ModelProduct const& one : operations_of(config)) CHECK(one.state == 20 * one.parameters);
  CHECK(largest_operation(config).in_out == 100 * (768 + 50257) * 2);
}
