// Trainings whose optimizer state lies elsewhere: the same bits, and what was moved is what was planned.

#include "parallel/engine/parameter_hash.hpp"
#include "parallel/plan/strategies.hpp"
#include "support/counted_run.hpp"
#include "support/temporary_folder.hpp"
#include "train/plan/run_plan.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <tuple>

using namespace trainstone;
using namespace trainstone::test;

namespace {

GptConfig const odd{2, 3, 12, 11, 29};

/// After three steps, with a look at the parameters on the way.
std::uint64_t trained_hash(Communicator& world, RunConfig const& config) {
  TrainingRun run(world, config);
  for (std::int64_t step = 1; step <= 3; ++step) {
    run.trainer.step(step);
    if (step == 2) run.trainer.parameter_changes();
  }
  run.trainer.finish();
  CHECK(run.trainer.engine().optimizer_state().moved() == 3 * run.plan.update_moves);
  CHECK(run.trainer.engine().parameter_shares().gathered() == 3 * run.plan.gather_moves);
  CHECK(run.ledger.high_water() == run.plan.memory_bytes());
  CHECK(run.trainer.parameters_are_finite()); // with padding
  return parameter_hash(run.exec, run.trainer.engine());
}

} // namespace

TEST_CASE("optimizer state trains to the same bits wherever it lies, moved as planned", "[mpi][offload]") {
  Communicator world = Communicator::world();
  auto const recipe = GENERATE(RecipeName::fp32, RecipeName::mixed16, RecipeName::mixed20);
  auto const recompute = GENERATE(Recompute::none, Recompute::full);
  RunConfig config = training_config(odd, {1, 2, 2 * world.size()});
  config.precision.recipe = recipe;
  config.model_options.recompute = {recompute};
  for (ParallelConfig const& strategy : strategies(world.size())) {
    set_strategy(config, strategy);
    config.parallel.offload_optimizer = Residence::kernels;
    std::uint64_t const expected = trained_hash(world, config);
    for (Residence const residence : {Residence::host, Residence::file})
      for (double const chunk : {4096.0, 12345.0, 1e9}) {
        INFO("stage " << strategy.zero_stage << " " << to_string(residence) << " chunk " << chunk);
        config.parallel.offload_optimizer = residence;
        config.parallel.offload_chunk_bytes = chunk;
        CHECK(trained_hash(world, config) == expected);
      }
  }
}

TEST_CASE("shares of parameters train to the same bits wherever they lie, moved as planned", "[mpi][offload]") {
  Communicator world = Communicator::world();
  auto const recipe = GENERATE(RecipeName::fp32, RecipeName::mixed16, RecipeName::mixed20);
  auto const state = GENERATE(Residence::kernels, Residence::host, Residence::file);
  RunConfig config = training_config(odd, {1, 2, 2 * world.size()});
  config.precision.recipe = recipe;
  config.model_options.recompute = {state == Residence::host ? Recompute::full : Recompute::none};
  for (ParallelConfig const& strategy : strategies(world.size())) {
    if (stage_of(strategy) < 3) continue;
    set_strategy(config, strategy);
    config.parallel.offload_optimizer = config.parallel.offload_parameters = Residence::kernels;
    std::uint64_t const expected = trained_hash(world, config);
    config.parallel.offload_optimizer = state;
    for (auto const& [prefetch, overlap, chunk] :
         {std::tuple{0, true, 4096.0}, {1, true, 12345.0}, {2, true, 1e9}, {1, false, 4096.0}})
      for (Residence const residence : {Residence::host, Residence::file}) {
        if (world.size() > 4 && prefetch != 1) continue; // more ranks than cores take long
        INFO(to_string(state) << ", parameters " << to_string(residence) << " chunk " << chunk << " prefetch "
                              << prefetch << (overlap ? "" : " no overlap"));
        config.parallel.offload_parameters = residence;
        config.parallel.offload_chunk_bytes = chunk;
        config.parallel.prefetch = prefetch;
        config.parallel.overlap = overlap;
        CHECK(trained_hash(world, config) == expected);
      }
    config.parallel.prefetch = 1;
    config.parallel.overlap = true;
  }
}

TEST_CASE("everything else is counted as planned while the optimizer's state lies elsewhere", "[mpi][offload]") {
  Communicator world = Communicator::world();
  RunConfig config = training_config(odd, {1, 2, 2 * world.size()});
  config.precision.recipe = GENERATE(RecipeName::fp32, RecipeName::mixed18);
  config.parallel.offload_optimizer = GENERATE(Residence::host, Residence::file);
  config.parallel.offload_chunk_bytes = 4096;
  for (ParallelConfig const& strategy : strategies(world.size())) {
    set_strategy(config, strategy);
    config.parallel.offload_parameters = Residence::kernels;
    check_counts(world, config);
    if (stage_of(strategy) < 3) continue;
    config.parallel.offload_parameters = config.parallel.offload_optimizer;
    check_counts(world, config);
  }
}
