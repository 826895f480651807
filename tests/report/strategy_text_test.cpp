// What explanations of strategies say and draw.

#include "report/strategy_svg.hpp"
#include "report/strategy_text.hpp"

#include "parallel/program/step_walk.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <utility>

using namespace trainstone;
using Catch::Matchers::ContainsSubstring;

namespace {

StepWalk walk_small(ParallelConfig const& parallel, Rank ranks) {
  GptConfig const model{.layers = 2, .heads = 1, .channels = 8, .context = 8, .vocab = 16};
  return walk_step(parallel, {}, ParameterTable(model, mesh_of(parallel, ranks).parts()), Topology::one_node(ranks));
}

ParallelConfig zero(Index stage) { return {.strategy = Strategy::zero, .zero_stage = stage}; }

std::size_t occurrences(std::string const& text, std::string const& word) {
  std::size_t found = 0;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++found;
  return found;
}

} // namespace

TEST_CASE("a strategy's text says who owns what and what starts when", "[report][strategy]") {
  // root's groups have 128 x 8 = 1024, 64 and 16 elements, each padded to 1024; a block 12 * 64 + 13 * 8 = 872, padded
  // to 1024
  std::string const text = strategy_text("zero3", walk_small(zero(3), 4));
  CHECK_THAT(text, ContainsSubstring("zero3 on 4 ranks, 1 node: one training step of a GPT with 2 blocks, Psi = 5120"));
  CHECK_THAT(text,
             ContainsSubstring("  rank 1    [256, 512)   [256, 512)      [256, 512)   [256, 512)   [256, 512)\n"));
  CHECK_THAT(text, ContainsSubstring("\nforward block 0\n  dropped: root\n  starts: all_gather ring of parameters of "
                                     "block 1: every rank sends 768 elements in 3 messages\n"));
  CHECK_THAT(text, ContainsSubstring("\n  rank 2  2/-*  all/-*   >/-*\n"));
  CHECK_THAT(text, ContainsSubstring("\n  then starts: reduce_scatter ring of gradient of root: every rank sends 2304 "
                                     "elements in 3 messages\n"));
  CHECK_THAT(text, ContainsSubstring("parameters 1280, gradients 1280, optimizer state 2 x 1280, slots for whole units "
                                     "2 x 3072"));
}

TEST_CASE("units with owners are copied to the others, and types of mixed recipes are told", "[report][strategy]") {
  ParallelConfig parallel = zero(3);
  parallel.partition = StatePartition::inter_layer;
  GptConfig const model{.layers = 3, .heads = 1, .channels = 8, .context = 8, .vocab = 16};
  StepWalk const walk = walk_step(parallel, {}, ParameterTable(model, mesh_of(parallel, 4).parts()),
                                  Topology::one_node(4), {.recipe = RecipeName::mixed20});
  std::string const text = strategy_text("zero3", walk);
  CHECK_THAT(text, ContainsSubstring("Every unit has one owner, who updates it."));
  CHECK_THAT(text,
             ContainsSubstring("\n  rank 1    -            -               -           [0, 1024)  -          -\n"));
  CHECK_THAT(text, ContainsSubstring("broadcast binomial of parameters of block 0 from rank 1: ranks send 0 to "));
  CHECK_THAT(text, ContainsSubstring(
                       "reduce binomial of gradient of block 2 to rank 3: ranks send 0 to 1024 elements of bf16"));
  CHECK_THAT(text, ContainsSubstring("\n  rank 1  copy/-/-*  all/-/all  -/-/-      -/-/-\n"));
  CHECK_THAT(text,
             ContainsSubstring("in fp32: a copy of the gradients, master copy and 2 moments of what the rank owns; "
                               "parameters are the master copy, rounded to bf16\n"));
  // rank 1 owns a block of 1024: 2 + 2 bytes, and 4 of each moment, master copy and copy of the gradients
  CHECK_THAT(text,
             ContainsSubstring("kept by rank 1, in bytes: parameters 2 x 1024, gradients 2 x 1024, optimizer state "
                               "16 x 1024 (fp32: master copy, 2 moments, copy of the gradients), sum 20480\n"));
}

TEST_CASE("the sums are told in units of the parameters", "[report][strategy]") {
  for (auto const& [parallel, words] : {std::pair{ParallelConfig{}, "= 2 (N-1)/N Psi"},
                                        {zero(1), "= 2 (N-1)/N Psi"},
                                        {zero(2), "= 2 (N-1)/N Psi"},
                                        {zero(3), "= 3 (N-1)/N Psi"}})
    for (Rank const ranks : {2, 3, 4, 7}) {
      INFO(to_string(parallel.strategy) << " " << parallel.zero_stage << " on " << ranks);
      CHECK_THAT(strategy_sums(walk_small(parallel, ranks)), ContainsSubstring(words));
    }
  std::string const hybrid = strategy_sums(walk_small({.strategy = Strategy::hsdp, .shard_group = 2}, 6));
  CHECK_THAT(hybrid, ContainsSubstring("= 3 (F-1)/F Psi\n"));
  CHECK_THAT(hybrid, ContainsSubstring("= 2 (R-1)/R Psi/F\n"));
  CHECK_THAT(strategy_sums(walk_small(zero(3), 1)), ContainsSubstring("nothing"));
}

TEST_CASE("a strategy's picture has three bars per rank, unit and moment", "[report][strategy]") {
  StepWalk const walk = walk_small(zero(3), 3);
  std::string const picture = strategy_svg("zero3", walk);
  std::size_t const cells = walk.moments.size() * 3 * 3;
  // of the key and of all cells; every optimizer bar is filled
  CHECK(occurrences(picture, "<rect class=\"optimizer\"") == 1 + cells);
  CHECK(occurrences(picture, "<rect class=\"none\"") + occurrences(picture, "<rect class=\"under_way\"") ==
        1 + 3 * cells);
  CHECK(occurrences(picture, ">backward block 1</text>") == 1);
  CHECK(occurrences(picture, "&amp;") == 0);
}
