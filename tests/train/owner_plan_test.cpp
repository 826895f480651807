// Plans in which every unit of parameters has one owner, against closed forms that are written down here independently
// of src/: who owns what, and who sends how much by its place in the binomial tree behind the owner.

#include "train/plan/run_plan.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <algorithm>

using namespace trainstone;

namespace {

using Count = std::uint64_t;

/// Elements of root and of every block. Root's three groups and every block are padded to ranks * 256.
std::vector<Count> padded_units(GptConfig const& m, Count ranks) {
  auto const round_up = [](Count value, Count granule) { return (value + granule - 1) / granule * granule; };
  auto const h = static_cast<Count>(m.channels);
  Count const granule = ranks * 256, tokens = round_up(static_cast<Count>(m.vocab), 128) * h,
              positions = static_cast<Count>(m.context) * h;
  std::vector<Count> units(static_cast<std::size_t>(m.layers) + 1, round_up(12 * h * h + 13 * h, granule));
  units.front() = round_up(tokens, granule) + round_up(positions, granule) + round_up(2 * h, granule);
  return units;
}

std::size_t most(std::vector<Count> const& values) {
  return static_cast<std::size_t>(std::ranges::max_element(values) - values.begin());
}

/// The largest unit that is left goes to the rank that has least.
std::vector<std::size_t> owners_of(std::vector<Count> units, std::size_t ranks) {
  std::vector<Count> loads(ranks, 0);
  std::vector<std::size_t> owners(units.size());
  for (std::size_t i = 0; i < owners.size(); ++i) {
    std::size_t const unit = most(units);
    owners[unit] = static_cast<std::size_t>(std::ranges::min_element(loads) - loads.begin());
    loads[owners[unit]] += units[unit];
    units[unit] = 0;
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

/// The last unit is a run, then neighbours with one owner are, where buckets are larger than everything.
std::vector<std::size_t> owners_of_runs(std::vector<std::size_t> const& owners) {
  std::vector<std::size_t> runs{owners.back()};
  for (std::size_t g = owners.size() - 1; g-- > 0;)
    if (g + 2 == owners.size() || owners[g] != owners[g + 1]) runs.push_back(owners[g]);
  return runs;
}

/// Of one rank and step, over all units and micro-batches, in messages and elements.
struct Exchange {
  Count reduces = 0, reduced = 0, added = 0; ///< all gradients once
  Count broadcasts = 0, broadcast = 0;       ///< all parameters once
  Count owned = 0, elements = 0;
};

Exchange exchange_of(std::vector<Count> const& units, std::size_t rank, std::size_t ranks) {
  Exchange sum;
  std::vector<std::size_t> const owners = owners_of(units, ranks);
  auto const place = [&](std::size_t owner) { return (rank + ranks - owner) % ranks; };
  for (std::size_t g = 0; g < units.size(); ++g) {
    Count const below = children(place(owners[g]), ranks);
    if (rank != owners[g]) sum.reduced += units[g];
    if (rank == owners[g]) sum.owned += units[g];
    sum.added += below * units[g];
    sum.broadcasts += below;
    sum.broadcast += below * units[g];
    sum.elements += units[g];
  }
  for (std::size_t const owner : owners_of_runs(owners)) sum.reduces += rank != owner ? 1 : 0;
  return sum;
}

RunConfig make_config(GptConfig const& model, Index rank_micro_batches, Rank ranks) {
  RunConfig config;
  config.model = model;
  config.data.sequence = model.context;
  config.batch = {1, rank_micro_batches, rank_micro_batches * ranks};
  config.kernels.gemm = "kokkos";
  config.parallel.bucket_bytes = config.parallel.first_bucket_bytes = 1e9;
  return config;
}

} // namespace

TEST_CASE("whole units: a rank sends by its place behind each owner, and holds what it owns", "[train][plan]") {
  GptConfig const model = GENERATE(GptConfig{2, 3, 12, 11, 29}, GptConfig{3, 3, 36, 19, 97}, GptConfig{5, 1, 4, 4, 7});
  Rank const ranks = GENERATE(1, 2, 3, 4, 8);
  Index const rank_micro_batches = GENERATE(1, 4);
  std::int64_t const stage = GENERATE(1, 2, 3);
  auto const n = static_cast<std::size_t>(ranks);
  std::vector<Count> const units = padded_units(model, n);
  RunConfig config = make_config(model, rank_micro_batches, ranks);
  config.parallel.strategy = Strategy::zero;
  config.parallel.zero_stage = stage;
  config.parallel.partition = StatePartition::inter_layer;
  Count const reductions = stage == 1 ? 1 : static_cast<Count>(rank_micro_batches);
  Count const gathers = stage == 3 ? 2 * static_cast<Count>(rank_micro_batches) : 1;
  Count owned_by_all = 0, elements = 0;
  for (Rank rank = 0; rank < ranks; ++rank) {
    INFO("stage " << stage << ", rank " << rank << " of " << ranks << ", " << rank_micro_batches
                  << " micro-batches per rank");
    Exchange const expected = exchange_of(units, static_cast<std::size_t>(rank), n);
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

TEST_CASE("whole units by all-reduce: all ranks get the sums, the owner keeps them and sends parameters",
          "[train][plan]") {
  GptConfig const model = GENERATE(GptConfig{2, 3, 12, 11, 29}, GptConfig{5, 1, 4, 4, 7});
  Rank const ranks = GENERATE(1, 2, 3, 4, 8);
  Index const rank_micro_batches = GENERATE(1, 4);
  std::int64_t const stage = GENERATE(1, 2);
  auto const n = static_cast<Count>(ranks), others = n - 1;
  std::vector<Count> const units = padded_units(model, n);
  RunConfig config = make_config(model, rank_micro_batches, ranks);
  config.parallel.strategy = Strategy::zero;
  config.parallel.zero_stage = stage;
  config.parallel.partition = StatePartition::inter_layer;
  config.parallel.gradient_reduction = GradientReductionWay::all_reduce;
  Count const reductions = stage == 1 ? 1 : static_cast<Count>(rank_micro_batches);
  Count const runs = owners_of_runs(owners_of(units, n)).size();
  for (Rank rank = 0; rank < ranks; ++rank) {
    INFO("stage " << stage << ", rank " << rank << " of " << ranks << ", " << rank_micro_batches
                  << " micro-batches per rank");
    Exchange const expected = exchange_of(units, static_cast<std::size_t>(rank), n);
    RunPlan const plan = plan_run(config, rank, ranks);
    Traffic const sent = plan.step_sent();
    CHECK(sent.messages == reductions * 2 * others * runs + expected.broadcasts);
    CHECK(sent.bytes == 4 * (reductions * 2 * others * expected.elements / n + expected.broadcast));
    CHECK(sent.reduced == reductions * others * expected.elements / n);
    CategoryBytes const memory = plan.memory_bytes();
    CHECK(memory[MemoryCategory::gradients] == 4 * (stage == 2 ? expected.owned : expected.elements));
    CHECK(memory[MemoryCategory::optimizer] == 8 * expected.owned);
  }
}

TEST_CASE("whole units: sums of all blocks go around the ring in blocks of what each rank owns", "[train][plan]") {
  GptConfig const model{2, 3, 12, 11, 29};
  Rank const ranks = GENERATE(2, 3, 4, 8);
  auto const n = static_cast<std::size_t>(ranks);
  std::vector<Count> const units = padded_units(model, n);
  std::vector<Count> blocks(n, 0);
  Count all = 0;
  std::vector<std::size_t> const owners = owners_of(units, n);
  for (std::size_t g = 0; g < units.size(); ++g) {
    blocks[owners[g]] += units[g] / 256;
    all += units[g] / 256;
  }
  RunConfig config = make_config(model, 1, ranks);
  config.parallel.strategy = Strategy::zero;
  config.parallel.zero_stage = 2;
  config.parallel.partition = StatePartition::inter_layer;
  for (std::size_t rank = 0; rank < n; ++rank) {
    Count const losses = 2 * 2 * (n - 1);            // a loss and a request of every rank
    Count const norm = all - blocks[(rank + 1) % n]; // all but the next one's
    CHECK(plan_run(config, static_cast<Rank>(rank), ranks).step_control().bytes == 8 * (losses + norm));
  }
}

TEST_CASE("whole units: slices of a unit go to its owner, and none crosses from one owner to the next",
          "[train][plan]") {
  GptConfig const model{3, 3, 12, 11, 29};
  Rank const ranks = 2;
  std::vector<Count> const units = padded_units(model, 2);
  RunConfig config = make_config(model, 1, ranks);
  config.parallel.strategy = Strategy::zero;
  config.parallel.zero_stage = 2;
  config.parallel.partition = StatePartition::inter_layer;
  config.parallel.bucket_bytes = config.parallel.first_bucket_bytes = 1024; // 256 elements
  std::vector<std::size_t> const owners = owners_of(units, 2);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    Count messages = 0;
    for (std::size_t g = 0; g < units.size(); ++g) messages += owners[g] == rank ? 1 : units[g] / 256;
    CHECK(plan_run(config, static_cast<Rank>(rank), ranks).step_sent().messages == messages);
  }
}

TEST_CASE("whole units in ordered mode: the owner adds up N contributions", "[train][plan]") {
  GptConfig const model{2, 3, 12, 11, 29};
  Rank const ranks = GENERATE(2, 4, 8);
  auto const n = static_cast<std::size_t>(ranks);
  std::vector<Count> const units = padded_units(model, n);
  RunConfig config = make_config(model, 2, ranks);
  config.parallel.strategy = Strategy::zero;
  config.parallel.zero_stage = 2;
  config.parallel.partition = StatePartition::inter_layer;
  config.parallel.reduction = ReductionMode::ordered;
  for (Rank rank = 0; rank < ranks; ++rank) {
    Exchange const expected = exchange_of(units, static_cast<std::size_t>(rank), n);
    RunPlan const plan = plan_run(config, rank, ranks);
    Count const table = (128 * 12 + n * 256 - 1) / (n * 256) * (n * 256); // whose gradient has two parts
    bool const owns_root = owners_of(units, n).front() == static_cast<std::size_t>(rank);
    CHECK(plan.step_sent().bytes == 4 * (2 * (expected.reduced + (owns_root ? 0 : table)) + expected.broadcast));
    CHECK(plan.step_sent().reduced == 2 * (n - 1) * (expected.owned + (owns_root ? table : 0)));
  }
}

namespace {

/// What rank 0 sends beside gradients or parameters: the data of every micro-batch, two values per token.
Count data_of(GptConfig const& model) { return 2 * static_cast<Count>(model.context); }

Count sum_of(std::vector<Count> const& units) {
  Count sum = 0;
  for (Count const unit : units) sum += unit;
  return sum;
}

/// Of the data of all ranks, in an arena.
Count batch_bytes(GptConfig const& model, Count ranks) {
  return ranks == 1 ? 0 : (4 * ranks * data_of(model) + 63) / 64 * 64;
}

/// Naive data parallelism on some ranks, with some micro-batches per rank: what both of its forms are compared with.
struct NaiveProblem {
  GptConfig model = GENERATE(GptConfig{2, 3, 12, 11, 29}, GptConfig{3, 3, 36, 19, 97});
  Rank ranks = GENERATE(1, 2, 3, 4, 8);
  Count rank_micro_batches = GENERATE(1, 4);
  Count n = static_cast<Count>(ranks), others = n - 1, data = data_of(model);
  std::vector<Count> units = padded_units(model, n);
  Count elements = sum_of(units);
  RunConfig config = make_config(model, static_cast<Index>(rank_micro_batches), ranks);
  CategoryBytes alone = plan_run(config, 0, ranks).memory_bytes(); ///< of a rank without others

  explicit NaiveProblem(NaiveUpdate update) {
    config.parallel.strategy = Strategy::naive;
    config.parallel.naive_update = update;
  }
};

} // namespace

TEST_CASE("naive data parallelism as taught: rank 0 collects gradients and sends their mean, every rank updates",
          "[train][plan]") {
  NaiveProblem const problem(NaiveUpdate::each);
  auto const& [model, ranks, rank_micro_batches, n, others, data, units, elements, config, alone] = problem;
  for (Rank rank = 0; rank < ranks; ++rank) {
    INFO("rank " << rank << " of " << ranks << ", " << rank_micro_batches << " micro-batches per rank");
    bool const first = rank == 0;
    RunPlan const plan = plan_run(config, rank, ranks);
    Traffic const sent = plan.step_sent();
    Count const collected = ranks == 1 ? 0 : elements;
    CHECK(sent.bytes == 4 * (first ? others * (elements + rank_micro_batches * data) : collected));
    CHECK(sent.messages == (first ? others * (1 + rank_micro_batches) : 1));
    CHECK(sent.reduced == (first ? others * elements : 0));
    CHECK(plan.update_sent == Traffic{}); // what is sent is sent before it
    CHECK(plan.step_control().bytes ==
          8 * 2 * others * (rank_micro_batches + 1)); // losses and requests: all know the whole norm
    CHECK(plan.validation_sent.bytes == (first ? 4 * others * data : 0));
    CategoryBytes const memory = plan.memory_bytes();
    CHECK(memory[MemoryCategory::parameters] == 4 * elements);
    CHECK(memory[MemoryCategory::gradients] == 4 * elements);
    CHECK(memory[MemoryCategory::optimizer] == 8 * elements);
    CHECK(memory[MemoryCategory::data] == alone[MemoryCategory::data] + batch_bytes(model, n));
    // at the start: parameters and two moments of every group, of which root has three
    CHECK(plan.start_sent().bytes == (first ? 4 * 3 * others * elements : 0));
    CHECK(plan.start_sent().messages == (first ? 3 * others * (units.size() + 2) : 0));
  }
}

TEST_CASE("rank 0 sends the optimizer's state in fp32, whatever recipe and optimizer", "[train][plan]") {
  GptConfig const model{2, 3, 12, 11, 29};
  Rank const ranks = GENERATE(2, 4);
  Count const elements = sum_of(padded_units(model, static_cast<Count>(ranks)));
  auto const others = static_cast<Count>(ranks) - 1;
  struct Case {
    RecipeName recipe;
    OptimizerConfig optimizer;
    Count held, sent; ///< bytes per parameter of the optimizer's state; sent at the start
  };
  OptimizerConfig const descent{.type = OptimizerType::sgd}, momentum{.type = OptimizerType::sgd, .momentum = 0.9};
  using enum RecipeName;
  for (Case const& one :
       {Case{fp32, {}, 8, 12}, Case{mixed16, {}, 12, 12}, Case{mixed18, {}, 12, 12}, Case{mixed20, {}, 16, 12},
        Case{fp32, descent, 0, 4}, Case{fp32, momentum, 4, 8}, Case{mixed16, momentum, 8, 8}}) {
    INFO(to_string(one.recipe) << ", " << one.sent << " bytes");
    RunConfig config = make_config(model, 1, ranks);
    config.parallel.strategy = Strategy::naive;
    config.precision.recipe = one.recipe;
    config.optimizer = one.optimizer;
    for (Rank rank = 0; rank < ranks; ++rank) {
      RunPlan const plan = plan_run(config, rank, ranks);
      CHECK(plan.memory_bytes()[MemoryCategory::optimizer] == one.held * elements);
      CHECK(plan.start_sent().bytes == (rank == 0 ? one.sent * others * elements : 0));
    }
    config.parallel.naive_update = NaiveUpdate::main;
    CHECK(plan_run(config, 0, ranks).start_sent() == Traffic{});
  }
}

TEST_CASE("naive data parallelism in ordered mode: the same, in fp32 and summed by the balanced tree",
          "[train][plan]") {
  GptConfig const model{2, 3, 12, 11, 29};
  Rank const ranks = GENERATE(2, 4, 8);
  Count const granule = static_cast<Count>(ranks) * 256;
  Count const table = (128 * 12 + granule - 1) / granule * granule; // whose gradient has two parts
  Count const elements = sum_of(padded_units(model, static_cast<Count>(ranks))) + table;
  auto const others = static_cast<Count>(ranks) - 1;
  RunConfig config = make_config(model, 2, ranks);
  config.parallel.strategy = Strategy::naive;
  config.parallel.reduction = ReductionMode::ordered;
  config.precision.recipe = RecipeName::mixed16;
  for (Rank rank = 0; rank < ranks; ++rank) {
    RunPlan const plan = plan_run(config, rank, ranks);
    CHECK(plan.step_sent().bytes == 4 * (rank == 0 ? others * (elements + 2 * data_of(model)) : elements));
    CHECK(plan.step_sent().reduced == (rank == 0 ? others * elements : 0));
  }
}

TEST_CASE("naive data parallelism with one updater: rank 0 sends parameters and data to all, collects, and alone has "
          "optimizer state",
          "[train][plan]") {
  NaiveProblem const problem(NaiveUpdate::main);
  auto const& [model, ranks, rank_micro_batches, n, others, data, units, elements, config, alone] = problem;
  for (Rank rank = 0; rank < ranks; ++rank) {
    INFO("rank " << rank << " of " << ranks << ", " << rank_micro_batches << " micro-batches per rank");
    bool const first = rank == 0;
    RunPlan const plan = plan_run(config, rank, ranks);
    Traffic const sent = plan.step_sent();
    CHECK(sent.bytes == 4 * (first ? others * (elements + rank_micro_batches * data) : elements));
    CHECK(sent.messages == (first ? others * (units.size() + rank_micro_batches) : 1));
    CHECK(sent.reduced == (first ? others * elements : 0));
    CHECK(plan.validation_sent.bytes == (first ? 4 * others * data : 0));
    CHECK(plan.validation_sent.messages == (first ? others : 0));
    CategoryBytes const memory = plan.memory_bytes();
    CHECK(memory[MemoryCategory::parameters] == 4 * elements);
    CHECK(memory[MemoryCategory::gradients] == 4 * elements);
    CHECK(memory[MemoryCategory::optimizer] == (first ? 8 * elements : 0));
    CHECK(memory[MemoryCategory::data] == alone[MemoryCategory::data] + batch_bytes(model, n));
  }
}
