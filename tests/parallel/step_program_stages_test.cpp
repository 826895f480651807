// Cuts of a model into stages: even, balanced, and as listed.

#include "core/error.hpp"
#include "parallel/pipeline/pipeline_stages.hpp"
#include "parallel/pipeline/pipeline_timeline.hpp"
#include "support/pipelines.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <cmath>
#include <functional>
#include <random>

using namespace trainstone;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

namespace {

using Cut = std::vector<Index>;

/// Calls visit(cut) for all cuts.
void for_each_cut(Index blocks, Index stages, std::function<void(Cut const&)> const& visit) {
  Cut cut;
  std::function<void(Index)> const extend = [&](Index left) {
    if (std::ssize(cut) + 1 == stages) {
      cut.push_back(left);
      visit(cut);
      cut.pop_back();
      return;
    }
    for (Index count = 0; count <= left; ++count) {
      cut.push_back(count);
      extend(left - count);
      cut.pop_back();
    }
  };
  extend(blocks);
}

/// GPT-2's blocks, its head in units of a block.
BlockCosts const gpt2{.blocks = std::vector<double>(12, 1.0), .embed = 0, .head = 4.9};

/// The idle share of 1F1B with this cut. A third of a block is its forward; the head is at the end of a forward.
double idle_share(Cut const& cut, Index micro_batches) {
  PipelineShape const shape{std::ssize(cut), micro_batches, 1};
  PipelinePrices prices = equal_prices(shape, {});
  for (std::size_t stage = 0; stage < cut.size(); ++stage) prices.chunks[stage][0] = {10 * cut[stage], 20 * cut[stage]};
  prices.head = 147;
  return play_pipeline(program_of("1f1b", shape), prices).idle_share();
}

} // namespace

TEST_CASE("the best cut of GPT-2 on four stages leaves the last stage the head alone") {
  CHECK(balanced_stages(gpt2, 4, 16) == Cut{4, 4, 4, 0});
  CHECK(even_stages(12, 4) == Cut{3, 3, 3, 3});
  CHECK(stages_bound(gpt2, {4, 4, 4, 0}, 16) == 12 + 16 * 4.9);
  CHECK(std::abs(idle_share({3, 3, 3, 3}, 16) - 0.50) < 0.005);
  CHECK(std::abs(idle_share({4, 4, 4, 0}, 16) - 0.25) < 0.005);
  CHECK(std::abs(idle_share({6, 6}, 16) - 0.25) < 0.005);
  CHECK(std::abs(idle_share({8, 4}, 16) - 0.10) < 0.005);
}

TEST_CASE("the least bound is not always the least time of 1F1B") {
  // (9, 3) has the lower bound, and 1F1B, whose first stage waits for the head once, is as slow with it as with (8, 4)
  CHECK(balanced_stages(gpt2, 2, 16) == Cut{9, 3});
  CHECK(stages_bound(gpt2, {9, 3}, 16) == 16 * 9);
  CHECK(stages_bound(gpt2, {8, 4}, 16) == 8 + 16 * (4 + 4.9));
  CHECK(idle_share({8, 4}, 16) < idle_share({9, 3}, 16));
}

TEST_CASE("an even cut gives the first stages one more block") {
  CHECK(even_stages(13, 4) == Cut{4, 3, 3, 3});
  CHECK(even_stages(2, 3) == Cut{1, 1, 0});
  CHECK(even_stages(2, 4) == Cut{0, 1, 1, 0}); // a stage between the first and the last one needs a block
  CHECK(even_stages(5, 1) == Cut{5});
}

TEST_CASE("a balanced cut has the least bound of all cuts, and of these the most alike stages") {
  std::mt19937 random(3);
  std::uniform_int_distribution<int> cost(1, 9);
  for (Index round = 0; round < 40; ++round) {
    Index const blocks = round % 8, stages = 1 + round % 4, micro_batches = 1 + round;
    BlockCosts costs{
        .blocks = {}, .embed = static_cast<double>(cost(random)), .head = static_cast<double>(cost(random))};
    for (Index block = 0; block < blocks; ++block) costs.blocks.push_back(cost(random));
    CAPTURE(round, blocks, stages, micro_batches);
    auto const value = [&](Cut const& cut) {
      double squares = 0;
      for (double const load : stage_costs(costs, cut)) squares += load * load;
      return std::pair(stages_bound(costs, cut, micro_batches), squares);
    };
    auto least = value(even_stages(blocks, stages));
    for_each_cut(blocks, stages, [&](Cut const& cut) { least = std::min(least, value(cut)); });
    CHECK(value(balanced_stages(costs, stages, micro_batches)) == least);
  }
}

TEST_CASE("a list of blocks that is no cut is refused with one that is") {
  CHECK(cut_stages(StageCut::listed, {5, 7}, gpt2, 2, 4) == Cut{5, 7});
  CHECK(cut_stages(parse_stage_cut("even"), {}, gpt2, 3, 4) == Cut{4, 4, 4});
  CHECK(cut_stages(parse_stage_cut("balanced"), {}, gpt2, 4, 16) == Cut{4, 4, 4, 0});
  auto const refused = [](Cut const& listed, std::string const& words) {
    CHECK_THROWS_MATCHES(cut_stages(StageCut::listed, listed, gpt2, 2, 4), InputError,
                         MessageMatches(ContainsSubstring(words)));
  };
  refused({5}, "has 1 number for 2 stages, for example [6, 6]");
  refused({5, 6}, "[5, 6] are 11 in sum, the model has 12");
  refused({-1, 13}, "[-1, 13]");
  CHECK_THROWS_MATCHES(parse_stage_cut("best"), InputError,
                       MessageMatches(ContainsSubstring("even, balanced or a list")));
}
