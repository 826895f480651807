// What strategies refuse, and the values that they name instead.

#include "parallel/shard_plan.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace trainstone;

namespace {

struct Refusal {
  ParallelConfig parallel;
  CommConfig comm;
  char const* key;
  char const* legal; ///< part of the message
};

/// With two micro-batches on every rank.
void check_refused(std::vector<Refusal> const& refusals, Index ranks) {
  for (auto const& [parallel, comm, key, legal] : refusals) {
    auto const problem = find_parallel_problem(parallel, comm, ranks, 2);
    INFO(key);
    REQUIRE(problem);
    CHECK(problem->key == key);
    INFO(problem->message);
    CHECK(problem->message.find(legal) != std::string::npos);
  }
}

} // namespace

TEST_CASE("what a strategy cannot do is refused, with what would be right", "[parallel][plan]") {
  Index const ranks = 6;
  check_refused(
      {
          {{.strategy = Strategy::zero}, {}, "parallel.zero_stage", "1, 2 or 3"},
          {{.zero_stage = 1}, {}, "parallel.zero_stage", "\"zero\""},
          {{.strategy = Strategy::hsdp}, {}, "parallel.shard_group", "divisor of the 6 ranks"},
          {{.strategy = Strategy::hsdp, .shard_group = 4}, {}, "parallel.shard_group", "3 or 6"},
          {{.shard_group = 2}, {}, "parallel.shard_group", "\"hsdp\""},
          {{.reduction = ReductionMode::ordered}, {}, "parallel.reduction", "4 or 8"},
          {{.strategy = Strategy::zero, .zero_stage = 2, .reduce = ReduceWhen::last},
           {},
           "parallel.reduce",
           "\"each\""},
          {{.strategy = Strategy::zero, .zero_stage = 1, .granularity = Granularity::tensor},
           {},
           "parallel.granularity",
           "ddp"},
          {{.gradient_reduction = GradientReductionWay::all_reduce},
           {},
           "parallel.gradient_reduction",
           "zero_stage = 1"},
      },
      ranks);
  ParallelConfig const ordered{.reduction = ReductionMode::ordered};
  CHECK(find_parallel_problem(ordered, {}, 4, 3)->message.find("8 or 16") != std::string::npos);
  CHECK(find_parallel_problem(ordered, {.allreduce = "ring"}, 4, 2)->key == "comm.allreduce");
  CHECK_FALSE(find_parallel_problem(ordered, {.allreduce = "shared"}, 4, 2));
  CHECK_FALSE(find_parallel_problem({.strategy = Strategy::hsdp, .shard_group = 3}, {}, ranks, 2));
}

TEST_CASE("the main device collects once per step, and everything at once", "[parallel][plan]") {
  ParallelConfig parallel{.strategy = Strategy::naive};
  CHECK_FALSE(find_parallel_problem(parallel, {}, 3, 2));
  parallel.granularity = Granularity::step;
  CHECK_FALSE(find_parallel_problem(parallel, {}, 3, 2));
  parallel.granularity = Granularity::tensor;
  CHECK(find_parallel_problem(parallel, {}, 3, 2)->key == "parallel.granularity");
  ParallelConfig const each{.strategy = Strategy::naive, .reduce = ReduceWhen::each};
  auto const problem = find_parallel_problem(each, {}, 3, 2);
  REQUIRE(problem);
  CHECK(problem->key == "parallel.reduce");
  CHECK(problem->message.find("\"last\"") != std::string::npos);
}

TEST_CASE("whole groups belong to ZeRO and to reduces", "[parallel][plan]") {
  auto const inter_layer = StatePartition::inter_layer;
  check_refused(
      {
          {{.partition = inter_layer}, {}, "parallel.partition", "\"intra_layer\""},
          {{.strategy = Strategy::naive, .partition = inter_layer}, {}, "parallel.partition", "\"intra_layer\""},
          {{.strategy = Strategy::hsdp, .shard_group = 2, .partition = inter_layer},
           {},
           "parallel.partition",
           "\"intra_layer\""},
          {{.strategy = Strategy::zero,
            .zero_stage = 3,
            .partition = inter_layer,
            .gradient_reduction = GradientReductionWay::all_reduce},
           {},
           "parallel.gradient_reduction",
           "parallel.zero_stage = 1 or 2"},
          {{.strategy = Strategy::zero, .zero_stage = 1, .partition = inter_layer, .reduction = ReductionMode::ordered},
           {.reduce = "binomial"},
           "comm.reduce",
           "ordered, shared"},
      },
      4);
  CHECK_FALSE(find_parallel_problem({.strategy = Strategy::zero, .zero_stage = 3, .partition = inter_layer}, {}, 4, 2));
}
