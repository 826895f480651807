// What strategies refuse, and the values that they name instead; and what they send most of at a time.

#include "parallel/plan/parallel_problems.hpp"

#include "core/error.hpp"
#include "parallel/plan/shard_plan.hpp"
#include "parallel/program/shard_traffic.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>

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

CommConfig all_measured() {
  CommConfig comm;
  for (AlgorithmKey const& key : algorithm_keys) comm = with_algorithm(comm, key.name, algorithm_measured);
  return comm;
}

/// Of the last rank.
ShardPlan plan_of(ParallelConfig const& parallel, Rank ranks, CommConfig const& comm = {},
                  PrecisionConfig const& precision = {}) {
  GptConfig const model{.layers = 3, .heads = 2, .channels = 16, .context = 8, .vocab = 97};
  return make_shard_plan(parallel, {}, precision, comm, ParameterTable(model, mesh_of(parallel, ranks).parts()),
                         Topology::one_node(ranks), ranks - 1, 1);
}

/// Elements; 0 if there is none.
Index heaviest(ShardPlan const& plan, Collective collective) {
  auto const found = heaviest_collective(plan, collective);
  return found ? found->planned.problem.elements() : 0;
}

/// Of the whole largest bucket.
Index largest_bucket(ShardPlan const& plan) {
  Index most = 0;
  for (auto const& [bucket, count] : plan.reductions.buckets.by_size())
    most = std::max(most, bucket.share_elements() * plan.layout.ownership.owners());
  return most;
}

} // namespace

TEST_CASE("algorithms of shared memory are refused on several nodes, with their key and others") {
  GptConfig const model{.layers = 1, .heads = 2, .channels = 16, .context = 8, .vocab = 97};
  auto const error_of = [&](ParallelConfig const& parallel, CommConfig const& comm) -> std::string {
    try {
      GptOptions const options{.slices = {.blocks = parallel.tensor, .ranks = static_cast<Rank>(parallel.tensor)}};
      ParameterTable const table(model, 4 / parallel.tensor, options.slices);
      make_shard_plan(parallel, {}, {}, comm, table, Topology::cyclic(4, 2), 0, 1, options, {{1, 8}, 16});
    } catch (InputError const& error) {
      return error.what();
    }
    return "none";
  };
  std::string const why = "works inside one node, and the ";
  CHECK(error_of({}, {.allreduce = "shared"})
            .starts_with("comm.allreduce: all_reduce shared " + why +
                         "4 ranks are on 2 nodes; legal values: auto, naive, "));
  CHECK(error_of({}, {.allreduce = "shared"}).find(", shared") == std::string::npos);
  CHECK(error_of({}, {.allreduce = "hierarchical"}) == "none");
  std::string const tensor = error_of({.tensor = 2}, {.tensor_allreduce = "shared"});
  CHECK(
      tensor.starts_with("comm.tensor_allreduce: all_reduce shared " + why + "2 ranks are on 2 nodes; legal values: "));
  CHECK(error_of({.tensor = 2}, {.allreduce = "shared"}) == "none"); // data ranks are two apart: on the same node
}

TEST_CASE("what a strategy cannot do is refused, with what would be right", "[parallel][plan]") {
  Index const ranks = 6;
  check_refused(
      {
          {{.strategy = Strategy::zero}, {}, "parallel.zero_stage", "1, 2 or 3"},
          {{.zero_stage = 1}, {}, "parallel.zero_stage", "\"zero\""},
          {{.strategy = Strategy::hsdp}, {}, "parallel.shard_group", "divisor of the 6 data ranks"},
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

TEST_CASE("data ranks run every micro-batch once, and ranks with the same data run the same", "[parallel][plan]") {
  StateLayout layout;
  layout.mesh = {.tensor = 2, .shard = 3, .replica = 4, .pipeline = 5};
  layout.rank_micro_batches = 7;
  REQUIRE(layout.micro_batches() == 7 * 3 * 4);
  for (bool const sharded : {false, true}) {
    layout.sharding.gradients = sharded;
    std::vector<int> runs(static_cast<std::size_t>(layout.micro_batches()), 0);
    for (Rank rank = 0; rank < layout.mesh.ranks(); ++rank)
      for (Index own = 0; own < layout.rank_micro_batches; ++own) {
        Index const number = layout.micro_batch(own, rank);
        ++runs.at(static_cast<std::size_t>(number));
        for (Axis const axis : {Axis::tensor, Axis::pipeline})
          for (Rank const other : layout.mesh.members(axis, rank)) CHECK(layout.micro_batch(own, other) == number);
      }
    CHECK(std::ranges::count(runs, 2 * 5) == std::ssize(runs));
  }
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

TEST_CASE("whole units belong to ZeRO and to reduces", "[parallel][plan]") {
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

TEST_CASE("choices by time are refused in ordered mode, also where nothing is added up", "[parallel][plan]") {
  ParallelConfig const ordered{.reduction = ReductionMode::ordered};
  for (AlgorithmKey const& key : algorithm_keys)
    check_refused({{ordered, with_algorithm({}, key.name, algorithm_measured), key.name, "\"auto\" or an algorithm"}},
                  4);
}

TEST_CASE("what is measured is planned like auto until it is known", "[parallel][plan]") {
  for (ParallelConfig const& parallel :
       {ParallelConfig{}, ParallelConfig{.strategy = Strategy::naive},
        ParallelConfig{.strategy = Strategy::zero, .zero_stage = 3},
        ParallelConfig{.strategy = Strategy::hsdp, .shard_group = 2, .reduce = ReduceWhen::each},
        ParallelConfig{.strategy = Strategy::zero, .zero_stage = 1, .partition = StatePartition::inter_layer}}) {
    auto const expected = step_traffic(plan_of(parallel, 4)),
               found = step_traffic(plan_of(parallel, 4, all_measured()));
    auto const same = [](TrafficRow const& a, TrafficRow const& b) {
      return a.name == b.name && a.traffic == b.traffic;
    };
    CHECK(std::ranges::equal(found, expected, same));
  }
}

TEST_CASE("the heaviest collective of a kind is the largest bucket, or the largest group", "[parallel][plan]") {
  double const bucket = 4096; // several buckets
  ShardPlan const ddp = plan_of({.bucket_bytes = bucket, .first_bucket_bytes = bucket / 4}, 3);
  CHECK(ddp.reductions.buckets.by_size().size() > 1);
  CHECK(heaviest(ddp, Collective::all_reduce) == largest_bucket(ddp));
  for (auto const other :
       {Collective::all_gather, Collective::reduce_scatter, Collective::reduce, Collective::broadcast})
    CHECK_FALSE(heaviest_collective(ddp, other));

  ShardPlan const zero = plan_of({.strategy = Strategy::zero, .zero_stage = 3}, 3, {}, {.recipe = RecipeName::mixed18});
  CHECK(heaviest(zero, Collective::reduce_scatter) == largest_bucket(zero));
  CHECK(heaviest_collective(zero, Collective::reduce_scatter)->element_bytes == 4);
  CHECK(heaviest(zero, Collective::all_gather) == zero.layout.largest_unit()); // and not the block sums of the norm
  CHECK(heaviest_collective(zero, Collective::all_gather)->element_bytes == 2);
  CHECK_FALSE(heaviest_collective(zero, Collective::all_reduce));

  ShardPlan const hsdp = plan_of({.strategy = Strategy::hsdp, .shard_group = 2}, 6);
  CHECK(heaviest_collective(hsdp, Collective::all_reduce)->planned.axis == Axis::replica);
  CHECK(2 * heaviest(hsdp, Collective::all_reduce) == heaviest(hsdp, Collective::reduce_scatter));
}

TEST_CASE("the heaviest collective is of the training, not of its start", "[parallel][plan]") {
  ShardPlan const naive = plan_of({.strategy = Strategy::naive}, 3, {}, {.recipe = RecipeName::mixed16});
  REQUIRE_FALSE(start_collectives(naive).empty()); // broadcasts of the state in fp32
  CHECK(heaviest_collective(naive, Collective::broadcast)->element_bytes == 2);
  CHECK(heaviest(naive, Collective::reduce) == naive.layout.elements());
  for (ParallelConfig const& alone : {ParallelConfig{}, ParallelConfig{.strategy = Strategy::zero, .zero_stage = 3}})
    for (AlgorithmKey const& key : algorithm_keys) CHECK_FALSE(heaviest_collective(plan_of(alone, 1), key.collective));
}
