// Tensor ranks: what they allocate, compute and send equals the plan, and they end with the bits of one rank that has
// all slices.

#include "comm/execution/control.hpp"
#include "parallel/engine/parameter_hash.hpp"
#include "support/counted_run.hpp"

#include <catch2/generators/catch_generators.hpp>

#include <bit>
#include <optional>
#include <string>
#include <vector>

using namespace trainstone;
using namespace trainstone::test;

namespace {

enum class Positions { on_all, shared, kept };

struct Shape {
  Rank tensor, data, stages;
  Positions positions = Positions::on_all;
  Index row_chunks = 1;
};

constexpr Index sequence = 48; // all numbers of tensor ranks divide it

/// All shapes with several tensor ranks that divide the heads, and at most as many stages as the model fills.
std::vector<Shape> shapes_of(Rank ranks, Index heads, std::vector<Positions> const& all_positions) {
  std::vector<Shape> all;
  for (Rank tensor = 2; tensor <= ranks; ++tensor)
    for (Rank stages = 1; stages <= 4 && ranks % tensor == 0 && heads % tensor == 0; ++stages)
      for (Positions const positions : all_positions)
        if (ranks / tensor % stages == 0) all.push_back({tensor, ranks / tensor / stages, stages, positions});
  return all;
}

RunConfig tensor_config(Shape const& shape, Index micro_batches) {
  RunConfig config =
      training_config({2, 24, 48, sequence + 1, 100}, {2, micro_batches, 2 * micro_batches * shape.data});
  config.data.sequence = sequence;
  config.parallel.tensor = shape.tensor;
  config.parallel.pipeline = shape.stages;
  config.parallel.sequence = shape.positions != Positions::on_all;
  config.parallel.tensor_keep_gathered = shape.positions == Positions::kept;
  config.parallel.tensor_row_chunks = shape.row_chunks;
  return config;
}

std::string words_of(Shape const& shape) {
  char const* const positions = shape.positions == Positions::on_all   ? ""
                                : shape.positions == Positions::shared ? " that share positions"
                                                                       : " that share positions and keep rows";
  return std::to_string(shape.tensor) + " tensor ranks" + positions + ", " + std::to_string(shape.data) +
         " data ranks, " + std::to_string(shape.stages) + " stages";
}

struct Outcome {
  std::uint64_t hash;
  double loss; ///< held out
  bool operator==(Outcome const&) const = default;
};

bool is_power_of_two(Rank ranks) { return std::has_single_bit(static_cast<unsigned>(ranks)); }

} // namespace

TEST_CASE("memory, FLOPs, bytes and messages of tensor ranks equal those planned", "[mpi][tensor]") {
  Communicator world = test::world();
  RecipeName const recipe = GENERATE(RecipeName::fp32, RecipeName::mixed16);
  Recompute const again = GENERATE(Recompute::none, Recompute::full);
  bool const ordered = GENERATE(false, true);
  if (ordered && !is_power_of_two(world.size())) return;
  std::vector<std::string> algorithms{"auto"};
  if (world.reaches_neighbours()) algorithms.emplace_back("shared");
  if (!ordered) algorithms.insert(algorithms.end(), {"tree", "whole_ring"});
  Positions const more = again == Recompute::full ? Positions::kept : Positions::shared;
  std::size_t number = static_cast<std::size_t>(recipe) + (again == Recompute::full ? 2 : 0); // others in each case
  std::size_t turn = static_cast<std::size_t>(recipe) + (again == Recompute::full ? 1 : 0);
  for (Shape const& shape : shapes_of(world.size(), 24, {Positions::on_all, more}))
    for (ParallelConfig const& strategy : strategies_in_turns(world.size(), shape.data, turn++)) {
      RunConfig config = tensor_config(shape, 2);
      set_strategy(config, strategy);
      config.parallel.tensor_row_chunks = number % 3 == 0 ? 2 : 1; // of two samples
      config.precision.recipe = recipe;
      config.model_options.recompute = {again};
      if (ordered) {
        config.parallel.reduction = ReductionMode::ordered;
        config.parallel.tensor_blocks = 8;
      }
      if (again == Recompute::full) config.model_options = {.dropout = 0.25, .recompute = {again}, .loss_chunks = 2};
      config.parallel.overlap = again == Recompute::none;
      config.comm.tensor_allreduce = algorithms[number++ % algorithms.size()];
      if (shape.positions != Positions::on_all && config.comm.tensor_allreduce == "shared") {
        config.comm.tensor_reduce_scatter = "shared";
        config.comm.tensor_all_gather = number % 2 == 0 ? "shared" : "shared_push";
      }
      INFO(words_of(shape) << ", stage " << strategy.zero_stage << " of ZeRO, " << config.comm.tensor_allreduce);
      check_counts(world, config);
    }
}

TEST_CASE("tensor ranks end with the bits of one rank that has all slices", "[mpi][tensor]") {
  Communicator world = test::world();
  if (!is_power_of_two(world.size())) return;
  Index const slices = GENERATE(2, 8), row_chunks = GENERATE(1, 2);
  RecipeName const recipe = GENERATE(RecipeName::fp32, RecipeName::mixed16);
  auto const train = [&](Communicator& ranks, Shape const& shape, ParallelConfig const& strategy) {
    RunConfig config = tensor_config(shape, 8 / shape.data);
    config.batch.global = 16;
    set_strategy(config, strategy);
    config.parallel.reduction = ReductionMode::ordered;
    config.parallel.tensor_blocks = slices;
    config.precision.recipe = recipe;
    config.model_options.dropout = 0.1;
    if (shape.row_chunks > 1) {
      config.model_options.dropout_masks = DropoutMasks::stored;
      config.model_options.loss_chunks = 4;
      config.model_options.recompute = {Recompute::full};
    }
    TrainingRun run(ranks, config);
    for (std::int64_t step = 1; step <= 3; ++step) run.trainer.step(step);
    double const loss = run.trainer.validate();
    run.trainer.finish();
    return Outcome{parameter_hash(run.exec, run.trainer.engine()), loss};
  };
  Outcome expected{};
  if (std::optional<Communicator> one = world.first(1))
    expected = train(*one, {.tensor = 1, .data = 1, .stages = 1, .row_chunks = row_chunks}, {});
  expected = all_gather_values(world, expected).front();
  Positions const more = row_chunks == 1 ? Positions::shared : Positions::kept;
  std::size_t turn = static_cast<std::size_t>(recipe) + static_cast<std::size_t>(row_chunks);
  for (Shape const& shape : shapes_of(world.size(), slices, {Positions::on_all, more}))
    for (ParallelConfig const& strategy : strategies_in_turns(world.size(), shape.data, turn++)) {
      INFO(words_of(shape) << ", stage " << strategy.zero_stage << " of ZeRO");
      Shape in_chunks = shape;
      in_chunks.row_chunks = row_chunks;
      bool const same = train(world, in_chunks, strategy) == expected;
      CHECK(same);
    }
}

TEST_CASE("gradients that overflow on one tensor rank skip the step on all ranks", "[mpi][tensor]") {
  Communicator world = test::world();
  for (Shape const& shape : shapes_of(world.size(), 24, {Positions::on_all, Positions::shared})) {
    RunConfig config = tensor_config(shape, 2);
    config.model.vocab = 380; // no slice is padding alone, which has no gradient
    config.precision = {.recipe = RecipeName::mixed16, .storage = Storage::fp16, .loss_scale = LossScaling::dynamic};
    config.precision.initial_loss_scale = 1024;
    config.faults.overflow_step = 2;
    config.faults.overflow_rank = world.size() - 1; // on the last stage
    INFO(words_of(shape));
    TrainingRun run(world, config);
    for (std::int64_t step = 1; step <= 3; ++step) CHECK(run.trainer.step(step).skipped == (step == 2));
    run.trainer.finish();
    CHECK(check_replicas(run.exec, world, run.trainer).passed);
  }
}
