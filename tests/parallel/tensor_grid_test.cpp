// Tensor ranks as a grid: what they bring together over slices and over features, how many bytes that is, and that the
// proof accepts it and finds what is left out.

#include "parallel/plan/parallel_problems.hpp"
#include "parallel/plan/tensor_problems.hpp"
#include "support/broken_steps.hpp"

#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <map>

using namespace trainstone;
using namespace trainstone::test;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr Index rows = 16, channels = 48, heads = 8, vocab = 100;

struct GridCase {
  ParallelConfig parallel = {};
  Rank ranks = 4;
  Index layers = 3;
  Index micro_batches = 2;
  GptOptions options = {};
};

std::vector<ShardPlan> plans_of(GridCase const& one) {
  GptConfig const model =
      GptConfig{.layers = one.layers, .heads = heads, .channels = channels, .context = 8, .vocab = vocab}.in_slices(
          one.parallel.tensor);
  Mesh const mesh = mesh_of(one.parallel, one.ranks);
  std::vector<ShardPlan> plans;
  for (Rank rank = 0; rank < one.ranks; ++rank) {
    GptOptions options = one.options;
    options.slices = {one.parallel.tensor, mesh.tensor, mesh.index(Axis::tensor, rank), mesh.features,
                      mesh.index(Axis::features, rank)};
    options.row_chunks = one.parallel.tensor_row_chunks;
    ParameterTable const table(model, mesh.data(), options.slices);
    plans.push_back(make_shard_plan(one.parallel, {}, {}, {}, table, Topology::one_node(one.ranks), rank,
                                    one.micro_batches, options, {{2, 8}, channels, model.padded_vocab()}));
  }
  return plans;
}

Steps steps_of(GridCase const& one) { return Steps(plans_of(one)); }

ParallelConfig grid(ParallelConfig parallel, Index x, Index y) {
  parallel.tensor = x;
  parallel.tensor_grid[1] = y;
  return parallel;
}

/// How often a program starts each exchange.
std::map<SliceExchange, Index> exchanges_of(std::vector<Segment> const& segments) {
  std::map<SliceExchange, Index> counts;
  for_each_instruction(segments, [&](Instruction const& one) {
    if (one.act == Act::exchange) ++counts[exchange_of(one)];
  });
  return counts;
}

/// Bytes that a rank sends to tensor ranks in one micro-batch; of norms alone, or of all else.
std::uint64_t sent_bytes(ParallelConfig const& parallel, Index layers, bool of_norms) {
  ShardPlan const plan =
      plans_of({parallel, static_cast<Rank>(parallel.tensor * parallel.features()), layers, 1}).back();
  std::uint64_t bytes = 0;
  for_each_instruction(make_step_program(plan).step, [&](Instruction const& one) {
    if (one.act != Act::exchange || (exchange_of(one) == SliceExchange::feature_sums) != of_norms) return;
    PlannedExchange const& planned = plan.tensor.exchanges.at(exchange_of(one));
    bytes += predict_traffic(schedule_of(planned.collective, plan.layout.mesh, plan.layout.rank),
                             planned.collective.problem.topology, planned.element_bytes)
                 .bytes;
  });
  return bytes;
}

} // namespace

TEST_CASE("a block of a grid sends (8 (x - 1) + 24 (y - 1)) n h / (x y) values, and norms send four times 2 n fp64",
          "[parallel][program][grid]") {
  for (auto const& [x, y] : {std::pair{1, 1}, std::pair{2, 1}, std::pair{4, 1}, std::pair{1, 2}, std::pair{2, 2},
                             std::pair{1, 4}, std::pair{4, 2}, std::pair{2, 4}, std::pair{8, 2}}) {
    INFO(x << " x " << y);
    ParallelConfig const parallel = grid({}, x, y);
    auto const of_block = [&](bool of_norms) {
      return sent_bytes(parallel, 3, of_norms) - sent_bytes(parallel, 2, of_norms);
    };
    auto const values = static_cast<std::uint64_t>((8 * (x - 1) + 24 * (y - 1)) * rows * channels / (x * y));
    CHECK(of_block(false) == 4 * values);
    CHECK(of_block(true) == static_cast<std::uint64_t>(4 * 2 * (y - 1) * 2 * rows / y * 8));
  }
}

TEST_CASE("a grid brings together what its formulas say, in every strategy", "[parallel][program][grid]") {
  using enum SliceExchange;
  Index const layers = 3, micro_batches = 2, x = GENERATE(1, 2);
  for (ParallelConfig const& parallel : {ddp, zero1, zero2, zero3, in_slices}) {
    auto const programs = [&](GptOptions const& options) {
      return steps_of({grid(parallel, x, 2), 8, layers, micro_batches, options}).programs.front();
    };
    auto const expected = [&](std::map<SliceExchange, Index> of_features, std::map<SliceExchange, Index> const& sums) {
      if (x > 1) of_features.insert(sums.begin(), sums.end());
      return of_features;
    };
    CHECK(exchanges_of(programs({}).step) ==
          expected({{qkv, 2 * layers},
                    {hidden, 4 * layers},
                    {heads, 2 * layers},
                    {SliceExchange::logits, 2},
                    {feature_sums, 2 * (4 * layers + 2)}},
                   {{sum, 2 * (4 * layers + 2)}, {loss_maximum, 2}, {loss_sums, 2}}));
    CHECK(exchanges_of(programs({}).evaluation) ==
          expected({{qkv, layers}, {hidden, layers}, {SliceExchange::logits, 1}, {feature_sums, 2 * layers + 1}},
                   {{sum, 2 * layers + 1}, {loss_maximum, 1}, {loss_sums, 1}}));
    // all blocks but the last one compute both first products and both norms again, and with x one sum
    std::map<SliceExchange, Index> const again = exchanges_of(programs({.recompute = {Recompute::full}}).step);
    CHECK(again.at(qkv) == 2 * (2 * layers - 1));
    CHECK(again.at(hidden) == 2 * (3 * layers - 1));
    CHECK(again.at(feature_sums) == 2 * (4 * layers + 2 + 2 * (layers - 1)));
    CHECK(exchanges_of(programs({.loss_chunks = 4}).step).at(SliceExchange::logits) == 8);
  }
}

TEST_CASE("programs of grids are proved for every strategy", "[parallel][program][grid]") {
  auto const [x, y] = GENERATE(std::pair{1, 2}, std::pair{2, 2}, std::pair{4, 2}, std::pair{2, 4});
  bool const overlap = GENERATE(true, false);
  GptOptions const options =
      GENERATE(GptOptions{}, GptOptions{.recompute = {Recompute::full}},
               GptOptions{.dropout = 0.1, .recompute = {Recompute::selective}, .loss_chunks = 2});
  for (ParallelConfig parallel : {ddp, in_slices, zero1, zero2, zero3, hsdp}) {
    parallel = grid(parallel, x, y);
    parallel.tensor_row_chunks = overlap ? 2 : 1;
    parallel.overlap = overlap;
    if (find_parallel_problem(parallel, {}, mesh_of(parallel, 8).data(), 4)) continue;
    CHECK_NOTHROW(steps_of({parallel, 8, 3, 4, options}));
  }
}

TEST_CASE("a sum over features that nobody waits for, or that one rank leaves out, is found",
          "[parallel][program][defects][grid]") {
  using enum SliceExchange;
  for (SliceExchange const what : {qkv, hidden, heads, SliceExchange::logits, feature_sums}) {
    INFO(to_string(what));
    Steps early = steps_of({grid(zero1, 2, 2), 8});
    early.drop_everywhere(Steps::Same(waits_for(Act::exchange, static_cast<Index>(what))));
    check_found(early, StepDefect::undefined_read,
                "the " + std::string(to_string(what)) + " over all tensor ranks is not there");
  }
  Steps missing = steps_of({grid(zero1, 2, 2), 8});
  missing.drop(3, is(Act::exchange, static_cast<Index>(qkv), 1));
  check_found(missing, StepDefect::not_started, "wait for exchange queries, keys and values");
}

TEST_CASE("grids that contradict other keys, or that a model cannot have, are refused", "[parallel][grid]") {
  GptConfig const model{.layers = 1, .heads = heads, .channels = channels, .context = 8, .vocab = vocab};
  auto const refused = [&](ParallelConfig parallel, std::array<std::int64_t, 3> const& given, Index ranks = 8) {
    parallel.tensor_grid = given;
    parallel.tensor_grid[1] = given[1];
    std::optional<ConfigProblem> found = find_grid_problem(parallel);
    if (!found) found = find_tensor_ranks_problem(parallel, model, ranks);
    if (!found) found = find_tensor_problem(parallel, model, {2, 8});
    return found ? found->key + ": " + found->message : std::string("nothing");
  };
  ParallelConfig const two = grid({}, 2, 1);
  CHECK(refused(two, {2, 2, 1}) == "nothing");
  CHECK(refused(grid(hsdp, 2, 1), {2, 2, 2}) == "nothing");
  CHECK(refused(grid(zero3, 2, 1), {2, 2, 2}) == "nothing");
  CHECK_THAT(refused(two, {4, 2, 1}), ContainsSubstring("parallel.tensor: parallel.tensor = 2 contradicts"));
  CHECK_THAT(refused(two, {2, 1, 2}), ContainsSubstring("parallel.strategy: parallel.strategy = \"ddp\" contradicts"));
  CHECK_THAT(refused(grid(hsdp, 2, 1), {2, 1, 4}), ContainsSubstring("shard_group = 2 contradicts"));
  CHECK_THAT(refused(grid(zero3, 2, 1), {2, 1, 2}), ContainsSubstring("all 4 data ranks share the state"));
  CHECK_THAT(refused(two, {2, 3, 1}), ContainsSubstring("x y = 6 does not divide the 8 ranks"));
  CHECK_THAT(refused(two, {2, 5, 1}, 10), ContainsSubstring("5 ranks cannot share model.channels = 48"));
  ParallelConfig in_order = two, positions = two, blocks = two;
  in_order.reduction = ReductionMode::ordered;
  positions.sequence = true;
  blocks.tensor_blocks = 4;
  CHECK_THAT(refused(in_order, {2, 2, 1}), ContainsSubstring("\"ordered\""));
  CHECK_THAT(refused(positions, {2, 2, 1}), ContainsSubstring("parallel.sequence"));
  CHECK_THAT(refused(blocks, {2, 2, 1}), ContainsSubstring("one slice"));
}
