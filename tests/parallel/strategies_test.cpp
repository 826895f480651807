// The table of strategies: what is in it can run, and can be told apart.

#include "parallel/plan/strategies.hpp"

#include "parallel/plan/mesh.hpp"
#include "parallel/plan/parallel_problems.hpp"

#include <catch2/catch_test_macros.hpp>

#include <set>

using namespace trainstone;

TEST_CASE("every strategy of the table is explained by name, and is among all strategies", "[parallel][plan]") {
  std::vector<ParallelConfig> const all = all_strategies(4);
  for (StrategyRow const& row : strategy_table) {
    CAPTURE(row.name);
    CHECK(
        std::ranges::any_of(named_strategies, [&](NamedStrategy const& one) { return one.strategy == row.strategy; }));
    CHECK(std::ranges::any_of(all, [&](ParallelConfig const& one) { return one.strategy == row.strategy; }));
  }
  for (NamedStrategy const& one : named_strategies) CHECK(find_strategy(one.name) == &one);
  CHECK(find_strategy("zero") == nullptr); // without its stage
}

TEST_CASE("all strategies can run on their ranks, and their names differ", "[parallel][plan]") {
  for (Index ranks = 1; ranks <= 12; ++ranks) {
    std::set<std::string> names;
    for (ParallelConfig const& parallel : all_strategies(ranks)) {
      CAPTURE(ranks, strategy_name(parallel, ranks));
      CHECK_FALSE(find_parallel_problem(parallel, {}, mesh_of(parallel, ranks).data(), 2));
      CHECK(names.insert(strategy_name(parallel, ranks)).second);
    }
  }
}

TEST_CASE("a strategy is named with what distinguishes it", "[parallel][plan]") {
  CHECK(strategy_name({}, 4) == "ddp");
  CHECK(strategy_name({.strategy = Strategy::naive, .naive_update = NaiveUpdate::main}, 4) == "naive main");
  CHECK(strategy_name({.strategy = Strategy::zero,
                       .zero_stage = 2,
                       .partition = StatePartition::inter_layer,
                       .gradient_reduction = GradientReductionWay::all_reduce},
                      4) == "zero 2 all-reduce inter-layer");
  CHECK(strategy_name({.strategy = Strategy::hsdp, .shard_group = 2}, 8) == "hsdp 4x2");
}
