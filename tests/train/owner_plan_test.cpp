// Plans in which every parameter group has one owner, against closed forms that are written down here independently of
// src/: who owns what, and who sends how much by its place in the binomial tree behind the owner.

#include "train/run_plan.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <algorithm>

using namespace trainstone;

namespace {

using Count = std::uint64_t;

/// Elements of root and of every block, padded to ranks * 256.
std::vector<Count> padded_groups(GptConfig const& m, Count ranks) {
  auto const round_up = [](Count value, Count granule) { return (value + granule - 1) / granule * granule; };
  auto const h = static_cast<Count>(m.channels);
  Count const root = (round_up(static_cast<Count>(m.vocab), 128) + static_cast<Count>(m.context) + 2) * h;
  std::vector<Count> groups(static_cast<std::size_t>(m.layers) + 1, round_up(12 * h * h + 13 * h, ranks * 256));
  groups.front() = round_up(root, ranks * 256);
  return groups;
}

std::size_t most(std::vector<Count> const& values) {
  return static_cast<std::size_t>(std::ranges::max_element(values) - values.begin());
}

/// The largest group that is left goes to the rank that has least.
std::vector<std::size_t> owners_of(std::vector<Count> groups, std::size_t ranks) {
  std::vector<Count> loads(ranks, 0);
  std::vector<std::size_t> owners(groups.size());
  for (std::size_t i = 0; i < owners.size(); ++i) {
    std::size_t const group = most(groups);
    owners[group] = static_cast<std::size_t>(std::ranges::min_element(loads) - loads.begin());
    loads[owners[group]] += groups[group];
    groups[group] = 0;
  }
  return owners;
}

/// To how many ranks one passes on a broadcast, and from how many it takes in a reduce, `place` ranks behind the root:
/// those 1, 2, 4, ... places on, up to its own lowest bit and the last rank.
Count children(std::size_t place, std::size_t ranks) {
  Count count = 0;
  for (std::size_t step = 1; place + step < ranks && place % (2 * step) == 0; step *= 2) ++count;
  return count;
}

/// The last group is a run, then neighbours with one owner are, where buckets are larger than everything.
std::vector<std::size_t> owners_of_runs(std::vector<std::size_t> const& owners) {
  std::vector<std::size_t> runs{owners.back()};
  for (std::size_t g = owners.size() - 1; g-- > 0;)
    if (g + 2 == owners.size() || owners[g] != owners[g + 1]) runs.push_back(owners[g]);
  return runs;
}

/// Of one rank and step, over all groups and micro-batches, in messages and elements.
struct Exchange {
  Count reduces = 0, reduced = 0, added = 0; ///< all gradients once
  Count broadcasts = 0, broadcast = 0;       ///< all parameters once
  Count owned = 0, elements = 0;
};

Exchange exchange_of(std::vector<Count> const& groups, std::size_t rank, std::size_t ranks) {
  Exchange sum;
  std::vector<std::size_t> const owners = owners_of(groups, ranks);
  auto const place = [&](std::size_t owner) { return (rank + ranks - owner) % ranks; };
  for (std::size_t g = 0; g < groups.size(); ++g) {
    Count const below = children(place(owners[g]), ranks);
    if (rank != owners[g]) sum.reduced += groups[g];
    if (rank == owners[g]) sum.owned += groups[g];
    sum.added += below * groups[g];
    sum.broadcasts += below;
    sum.broadcast += below * groups[g];
    sum.elements += groups[g];
  }
  for (std::size_t const owner : owners_of_runs(owners)) sum.reduces += rank != owner ? 1 : 0;
  return sum;
}

RunConfig make_config(GptConfig const& model, Index turns, Rank ranks) {
  RunConfig config;
  config.model = model;
  config.data.sequence = model.context;
  config.batch = {1, turns, turns * ranks};
  config.kernels.gemm = "kokkos";
  config.parallel.bucket_bytes = config.parallel.first_bucket_bytes = 1e9;
  return config;
}

} // namespace

TEST_CASE("whole groups: a rank sends by its place behind each owner, and holds what it owns", "[train][plan]") {
  GptConfig const model = GENERATE(GptConfig{2, 3, 12, 11, 29}, GptConfig{3, 3, 36, 19, 97}, GptConfig{5, 1, 4, 4, 7});
  Rank const ranks = GENERATE(1, 2, 3, 4, 8);
  Index const turns = GENERATE(1, 4);
  std::int64_t const stage = GENERATE(1, 2, 3);
  auto const n = static_cast<std::size_t>(ranks);
  std::vector<Count> const groups = padded_groups(model, n);
  RunConfig config = make_config(model, turns, ranks);
  config.parallel.strategy = "zero";
  config.parallel.zero_stage = stage;
  config.parallel.partition = StatePartition::inter_layer;
  Count const reductions = stage == 1 ? 1 : static_cast<Count>(turns);
  Count const gathers = stage == 3 ? 2 * static_cast<Count>(turns) : 1;
  Count owned_by_all = 0, elements = 0;
  for (Rank rank = 0; rank < ranks; ++rank) {
    INFO("stage " << stage << ", rank " << rank << " of " << ranks << ", " << turns << " turns");
    Exchange const expected = exchange_of(groups, static_cast<std::size_t>(rank), n);
    RunPlan const plan = plan_run(config, rank, ranks);
    Traffic const sent = plan.step_sent();
    CHECK(sent.messages == reductions * expected.reduces + gathers * expected.broadcasts);
    CHECK(sent.bytes == 4 * (reductions * expected.reduced + gathers * expected.broadcast));
    CHECK(sent.reduced == reductions * expected.added);
    CategoryBytes const memory = plan.memory_bytes();
    CHECK(memory[MemoryCategory::parameters] == 4 * (stage == 3 ? expected.owned : expected.elements));
    CHECK(memory[MemoryCategory::gradients] == 4 * (stage >= 2 ? expected.owned : expected.elements));
    CHECK(memory[MemoryCategory::optimizer] == 8 * expected.owned);
    owned_by_all += expected.owned;
    elements = expected.elements;
  }
  CHECK(owned_by_all == elements);
}

TEST_CASE("whole groups: sums of all blocks go around the ring in blocks of what each rank owns", "[train][plan]") {
  GptConfig const model{2, 3, 12, 11, 29};
  Rank const ranks = GENERATE(2, 3, 4, 8);
  auto const n = static_cast<std::size_t>(ranks);
  std::vector<Count> const groups = padded_groups(model, n);
  std::vector<Count> blocks(n, 0);
  Count all = 0;
  std::vector<std::size_t> const owners = owners_of(groups, n);
  for (std::size_t g = 0; g < groups.size(); ++g) {
    blocks[owners[g]] += groups[g] / 256;
    all += groups[g] / 256;
  }
  RunConfig config = make_config(model, 1, ranks);
  config.parallel.strategy = "zero";
  config.parallel.zero_stage = 2;
  config.parallel.partition = StatePartition::inter_layer;
  for (std::size_t rank = 0; rank < n; ++rank) {
    Count const losses = 2 * 2 * (n - 1);            // a loss and a request of every rank
    Count const norm = all - blocks[(rank + 1) % n]; // all but the next one's
    CHECK(plan_run(config, static_cast<Rank>(rank), ranks).step_control().bytes == 8 * (losses + norm));
  }
}

TEST_CASE("whole groups: slices of a group go to its owner, and none crosses from one owner to the next",
          "[train][plan]") {
  GptConfig const model{3, 3, 12, 11, 29};
  Rank const ranks = 2;
  std::vector<Count> const groups = padded_groups(model, 2);
  RunConfig config = make_config(model, 1, ranks);
  config.parallel.strategy = "zero";
  config.parallel.zero_stage = 2;
  config.parallel.partition = StatePartition::inter_layer;
  config.parallel.bucket_bytes = config.parallel.first_bucket_bytes = 1024; // 256 elements
  std::vector<std::size_t> const owners = owners_of(groups, 2);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    Count messages = 0;
    for (std::size_t g = 0; g < groups.size(); ++g) messages += owners[g] == rank ? 1 : groups[g] / 256;
    CHECK(plan_run(config, static_cast<Rank>(rank), ranks).step_sent().messages == messages);
  }
}

TEST_CASE("whole groups in ordered mode: the owner adds up N contributions", "[train][plan]") {
  GptConfig const model{2, 3, 12, 11, 29};
  Rank const ranks = GENERATE(2, 4, 8);
  auto const n = static_cast<std::size_t>(ranks);
  std::vector<Count> const groups = padded_groups(model, n);
  RunConfig config = make_config(model, 2, ranks);
  config.parallel.strategy = "zero";
  config.parallel.zero_stage = 2;
  config.parallel.partition = StatePartition::inter_layer;
  config.parallel.reduction = ReductionMode::ordered;
  for (Rank rank = 0; rank < ranks; ++rank) {
    Exchange const expected = exchange_of(groups, static_cast<std::size_t>(rank), n);
    RunPlan const plan = plan_run(config, rank, ranks);
    CHECK(plan.step_sent().bytes == 4 * (2 * expected.reduced + expected.broadcast));
    CHECK(plan.step_sent().reduced == 2 * (n - 1) * expected.owned);
  }
}

TEST_CASE("naive data parallelism: rank 0 sends model and data to all, collects, and alone has optimizer state",
          "[train][plan]") {
  GptConfig const model = GENERATE(GptConfig{2, 3, 12, 11, 29}, GptConfig{3, 3, 36, 19, 97});
  Rank const ranks = GENERATE(1, 2, 3, 4, 8);
  Index const turns = GENERATE(1, 4);
  auto const n = static_cast<Count>(ranks), others = n - 1;
  std::vector<Count> const groups = padded_groups(model, n);
  Count elements = 0;
  for (Count const group : groups) elements += group;
  Count const data = 2 * static_cast<Count>(model.context); // tokens and targets of a micro-batch of one sample
  RunConfig config = make_config(model, turns, ranks);
  CategoryBytes const alone = plan_run(config, 0, ranks).memory_bytes();
  config.parallel.strategy = "naive";
  for (Rank rank = 0; rank < ranks; ++rank) {
    INFO("rank " << rank << " of " << ranks << ", " << turns << " turns");
    bool const first = rank == 0;
    RunPlan const plan = plan_run(config, rank, ranks);
    Traffic const sent = plan.step_sent();
    CHECK(sent.bytes == 4 * (first ? others * (elements + static_cast<Count>(turns) * data) : elements));
    CHECK(sent.messages == (first ? others * (groups.size() + static_cast<Count>(turns)) : 1));
    CHECK(sent.reduced == (first ? others * elements : 0));
    CHECK(plan.validation_sent.bytes == (first ? 4 * others * data : 0));
    CHECK(plan.validation_sent.messages == (first ? others : 0));
    CategoryBytes const memory = plan.memory_bytes();
    CHECK(memory[MemoryCategory::parameters] == 4 * elements);
    CHECK(memory[MemoryCategory::gradients] == 4 * elements);
    CHECK(memory[MemoryCategory::optimizer] == (first ? 8 * elements : 0));
    Count const batches = ranks == 1 ? 0 : (4 * n * data + 63) / 64 * 64; // in an arena
    CHECK(memory[MemoryCategory::data] == alone[MemoryCategory::data] + batches);
  }
}

TEST_CASE("the main device collects once per step, and everything at once", "[train][plan]") {
  ParallelConfig parallel{.strategy = "naive"};
  CHECK_FALSE(find_parallel_problem(parallel, {}, 3, 2));
  parallel.granularity = Granularity::step;
  CHECK_FALSE(find_parallel_problem(parallel, {}, 3, 2));
  parallel.granularity = Granularity::tensor;
  CHECK(find_parallel_problem(parallel, {}, 3, 2)->key == "parallel.granularity");
  ParallelConfig const each{.strategy = "naive", .reduce = ReduceWhen::each};
  auto const problem = find_parallel_problem(each, {}, 3, 2);
  REQUIRE(problem);
  CHECK(problem->key == "parallel.reduce");
  CHECK(problem->message.find("\"last\"") != std::string::npos);
}

TEST_CASE("whole groups belong to ZeRO and to reduces", "[train][plan]") {
  struct Refusal {
    ParallelConfig parallel;
    CommConfig comm;
    char const* key;
    char const* legal;
  };
  auto const inter_layer = StatePartition::inter_layer;
  for (auto const& [parallel, comm, key, legal] : std::vector<Refusal>{
           {{.partition = inter_layer}, {}, "parallel.partition", "\"intra_layer\""},
           {{.strategy = "naive", .partition = inter_layer}, {}, "parallel.partition", "\"intra_layer\""},
           {{.strategy = "hsdp", .shard_group = 2, .partition = inter_layer},
            {},
            "parallel.partition",
            "\"intra_layer\""},
           {{.strategy = "zero",
             .zero_stage = 1,
             .partition = inter_layer,
             .gradient_reduction = GradientReductionWay::all_reduce},
            {},
            "parallel.gradient_reduction",
            "\"reduce_scatter\""},
           {{.strategy = "zero", .zero_stage = 1, .partition = inter_layer, .reduction = ReductionMode::ordered},
            {.reduce = "binomial"},
            "comm.reduce",
            "ordered, shared"},
       }) {
    auto const problem = find_parallel_problem(parallel, comm, 4, 2);
    INFO(key);
    REQUIRE(problem);
    CHECK(problem->key == key);
    INFO(problem->message);
    CHECK(problem->message.find(legal) != std::string::npos);
  }
  CHECK_FALSE(find_parallel_problem({.strategy = "zero", .zero_stage = 3, .partition = inter_layer}, {}, 4, 2));
}
