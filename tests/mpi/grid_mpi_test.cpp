// Tensor ranks that form a grid: what they allocate, compute and send equals the plan, they stay within the bounds of
// float64 references, and they drop the elements that one rank drops.

#include "comm/execution/control.hpp"
#include "parallel/engine/parameter_hash.hpp"
#include "support/counted_run.hpp"
#include "support/fixtures.hpp"
#include "train/verification/reference_check.hpp"

#include <catch2/generators/catch_generators.hpp>

#include <cmath>
#include <optional>
#include <string>
#include <vector>

using namespace trainstone;
using namespace trainstone::test;

namespace {

struct Grid {
  Rank x = 1, y = 1, data = 1, stages = 1;
};

constexpr Index sequence = 12;

/// With more than one rank on the second axis.
std::vector<Grid> grids_of(Rank ranks) {
  std::vector<Grid> all;
  for (Rank const x : {1, 2, 4})
    for (Rank const y : {2, 4})
      for (Rank stages = 1; stages <= 2 && ranks % (x * y) == 0; ++stages)
        if (ranks / (x * y) % stages == 0) all.push_back({x, y, ranks / (x * y) / stages, stages});
  return all;
}

RunConfig grid_config(Grid const& grid, Index micro_batches) {
  RunConfig config = training_config({2, 4, 24, sequence + 1, 100}, {2, micro_batches, 2 * micro_batches * grid.data});
  config.data.sequence = sequence;
  config.parallel.tensor = grid.x;
  config.parallel.tensor_grid[1] = grid.y;
  config.parallel.pipeline = grid.stages;
  return config;
}

std::string words_of(Grid const& grid) {
  return std::to_string(grid.x) + " x " + std::to_string(grid.y) + " tensor ranks, " + std::to_string(grid.data) +
         " data ranks, " + std::to_string(grid.stages) + " stages";
}

} // namespace

TEST_CASE("memory, FLOPs, bytes and messages of a grid of tensor ranks equal those planned", "[mpi][tensor][grid]") {
  Communicator world = test::world();
  RecipeName const recipe = GENERATE(RecipeName::fp32, RecipeName::mixed16);
  Recompute const again = GENERATE(Recompute::none, Recompute::full);
  std::vector<std::string> const algorithms{"auto", "tree", "whole_ring"};
  std::size_t number = static_cast<std::size_t>(recipe) + (again == Recompute::full ? 2 : 0); // others in each case
  for (Grid const& grid : grids_of(world.size()))
    for (ParallelConfig const& strategy : strategies(grid.data)) {
      RunConfig config = grid_config(grid, world.size() > 4 ? 1 : 2); // with few instructions they are proved
      set_strategy(config, strategy);
      config.parallel.tensor_row_chunks = number % 3 == 0 ? 2 : 1;
      config.precision.recipe = recipe;
      config.model_options.recompute = {again};
      if (again == Recompute::full)
        config.model_options = {.dropout = 0.25,
                                .dropout_masks = number % 2 == 0 ? DropoutMasks::stored : DropoutMasks::recomputed,
                                .recompute = {again},
                                .loss_chunks = 2};
      if (number % 2 == 0) config.model_options.attention = AttentionKind::flash;
      config.parallel.overlap = again == Recompute::none;
      config.comm.tensor_allreduce = algorithms[number++ % algorithms.size()];
      INFO(words_of(grid) << ", stage " << strategy.zero_stage << " of ZeRO, " << config.comm.tensor_allreduce);
      check_counts(world, config);
    }
}

TEST_CASE("ranks of a grid may add up in the memory of their node along one axis, not along two",
          "[mpi][tensor][grid]") {
  Communicator world = test::world();
  if (!world.reaches_neighbours()) return;
  for (Grid const& grid : grids_of(world.size())) {
    INFO(words_of(grid));
    RunConfig config = grid_config(grid, 2);
    config.comm.tensor_allreduce = "shared";
    if (grid.x == 1)
      check_counts(world, config);
    else
      CHECK_THROWS_AS(TrainingRun(world, config), InputError);
  }
}

TEST_CASE("a grid of tensor ranks stays within the bounds of fp32", "[mpi][reference][tensor][grid]") {
  std::string const name = GENERATE("gpt_even", "gpt_mesh");
  Communicator world = test::world();
  Fixture const fixture = find_fixture(name);
  std::string losses = fixture.model.string();
  losses.replace(losses.find(".model.bin"), std::string::npos, ".losses.json");
  ReferenceFiles const files{fixture.model.string(), fixture.state.string(), losses};
  for (Grid const& grid : grids_of(world.size()))
    for (bool const shards : {false, true}) { // the third axis of [x, y, z]
      if (grid.stages > 1 || (shards && grid.data == 1)) continue;
      if (4 % grid.data != 0) continue; // samples of the smaller fixture
      RunConfig choices;
      choices.comm.buffers = to_string(world.buffers());
      choices.parallel.tensor = grid.x;
      choices.parallel.tensor_grid[1] = grid.y;
      if (shards) choices.parallel.strategy = Strategy::hsdp;
      if (shards) choices.parallel.shard_group = grid.data;
      std::vector<ReferenceRow> const rows = compare_with_reference(ExecutionSpace(), world, files, choices);
      CHECK(rows.size() == 22);
      for (ReferenceRow const& row : rows) {
        INFO(name << ", " << words_of(grid) << (shards ? ", shared state, " : ", ") << row.name << ": absolute "
                  << row.max_absolute << ", relative " << row.max_relative << ", bound " << row.bound);
        CHECK(row.passed);
      }
    }
}

TEST_CASE("a grid trains as one rank does, and drops the same elements", "[mpi][tensor][grid]") {
  Communicator world = test::world();
  Recompute const again = GENERATE(Recompute::none, Recompute::full);
  AttentionKind const attention = GENERATE(AttentionKind::materialized, AttentionKind::flash);
  auto const held_out = [&](Communicator& ranks, Grid const& grid, double dropout) {
    RunConfig config = grid_config(grid, 8 / grid.data);
    config.model_options = {.attention = attention, .dropout = dropout, .recompute = {again}};
    TrainingRun run(ranks, config);
    for (std::int64_t step = 1; step <= 4; ++step) run.trainer.step(step);
    double const loss = run.trainer.validate();
    run.trainer.finish();
    return loss;
  };
  constexpr double dropout = 0.2, drops_more = 0.201; // of 129,024 elements in all micro-batches, about 129 more
  std::vector<double> losses(2);
  if (std::optional<Communicator> one = world.first(1))
    losses = {held_out(*one, {}, dropout), held_out(*one, {}, drops_more)};
  double const expected = all_gather_values(world, losses[0]).front(),
               other = std::abs(all_gather_values(world, losses[1]).front() - expected);
  for (Grid const& grid : grids_of(world.size())) {
    double const found = std::abs(held_out(world, grid, dropout) - expected);
    INFO(words_of(grid) << ": the loss " << expected << " differs by " << found << ", with other masks by " << other);
    CHECK(found < other / 1000); // sums in other orders move it by some roundings
  }
}
