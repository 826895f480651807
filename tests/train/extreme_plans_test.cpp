// The plans that estimates print are those of the ranks that need most.

#include "train/plan/extreme_plans.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <vector>

using namespace trainstone;

namespace {

RunConfig small_config(Rank ranks, ParallelConfig const& parallel, CommConfig const& comm) {
  RunConfig config;
  config.model = {2, 1, 8, 5, 29};
  config.data.sequence = 5;
  config.batch = {1, 1, ranks};
  config.kernels.gemm = "kokkos";
  config.parallel = parallel;
  config.comm = comm;
  return config;
}

std::uint64_t sent(RunPlan const& plan) { return plan.step_sent().bytes + plan.step_control().bytes; }

void check_extremes(RunConfig const& config, Topology const& topology) {
  std::uint64_t most_sent = 0, most_memory = 0;
  for (Rank rank = 0; rank < topology.ranks(); ++rank) {
    RunPlan const plan = plan_run(config, rank, topology);
    most_sent = std::max(most_sent, sent(plan));
    most_memory = std::max(most_memory, plan.memory_bytes().total());
  }
  auto const [largest, busiest] = plan_extremes(config, topology);
  CHECK(sent(busiest) == most_sent);
  CHECK(largest.memory_bytes().total() == most_memory);
}

} // namespace

TEST_CASE("no rank sends more or needs more memory than those of the extreme plans", "[train][plan][extremes]") {
  std::vector<ParallelConfig> const strategies{
      {},
      {.strategy = Strategy::zero, .zero_stage = 1},
      {.strategy = Strategy::zero, .zero_stage = 3},
      {.strategy = Strategy::zero, .zero_stage = 2, .partition = StatePartition::inter_layer},
      {.strategy = Strategy::hsdp, .shard_group = 5}};
  std::vector<CommConfig> const algorithms{
      {},
      {.allreduce = "tree"},
      {.allreduce = "pipelined_tree"},
      {.allreduce = "rabenseifner", .reduce_scatter = "recursive"},
      {.allreduce = "main_device", .reduce_scatter = "circulant", .all_gather = "bruck"}};
  for (Rank const ranks : {5, 20, 25})
    for (int const nodes : {1, 3})
      for (ParallelConfig const& parallel : strategies)
        for (CommConfig const& comm : algorithms) {
          INFO(to_string(parallel.strategy) << " " << parallel.zero_stage << " " << comm.allreduce << " on " << ranks
                                            << " ranks, " << nodes << " nodes");
          check_extremes(small_config(ranks, parallel, comm), Topology::block(ranks, nodes));
        }
}

TEST_CASE("the first of those that need most stands for them", "[train][plan][extremes]") {
  Topology const topology = Topology::one_node(20);
  auto const extremes = [&](char const* algorithm) {
    return plan_extremes(small_config(20, {}, {.allreduce = algorithm}), topology);
  };
  // rank 0 of a tree sends to 1, 2, 4, 8, 16, the main device to all
  CHECK(extremes("tree").busiest.rank == 0);
  CHECK(extremes("main_device").busiest.rank == 0);
  // the root of a pipelined tree has one child, rank 1 two and a parent
  CHECK(extremes("pipelined_tree").busiest.rank == 1);
  // blocks that wrap around are packed in scratch: in the largest round of circulant rank 0 sends none such
  CHECK(extremes("circulant").largest.rank == 1);
}
