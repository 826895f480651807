// Validations whose micro-batches are not those of the training: counted as planned, the loss of the same samples, and
// no trace of them in the training.

#include "parallel/engine/parameter_hash.hpp"
#include "support/counted_run.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include <cmath>

using namespace trainstone;
using namespace trainstone::test;

namespace {

GptConfig const odd{2, 3, 12, 11, 29};

/// Samples that depend on their number alone, in micro-batches of any size.
TrainingBatches batches_by_sample(RunConfig const& config) {
  TrainingBatches batches = training_batches(config.model.vocab);
  batches.validation = [config](std::int64_t batch, Index micro_batch, std::span<std::int32_t> inputs,
                                std::span<std::int32_t> targets) {
    auto const sequence = static_cast<std::size_t>(config.data.sequence);
    Index const micro = static_cast<Index>(inputs.size() / sequence);
    auto const first = static_cast<std::uint64_t>(batch * config.batch.global + micro_batch * micro);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      auto const token = random_block(3, RandomStream::tests, first * sequence + i).words[0] %
                         static_cast<std::uint32_t>(config.model.vocab);
      inputs[i] = static_cast<std::int32_t>(token);
      targets[i] = static_cast<std::int32_t>((token * 3 + 1) % static_cast<std::uint32_t>(config.model.vocab));
    }
  };
  return batches;
}

struct Trained {
  double loss = 0; ///< held-out, between two steps
  std::uint64_t hash = 0;
};

Trained train(Communicator& world, RunConfig const& config) {
  ExecutionSpace const exec;
  PlannedTrainer run(exec, world, resolved_on(world, config), batches_by_sample(config), 10);
  Trained trained;
  run.trainer.step(1);
  trained.loss = run.trainer.validate();
  run.trainer.step(2);
  run.trainer.finish();
  CHECK(run.ledger.high_water() == run.plan.memory_bytes());
  trained.hash = parameter_hash(exec, run.trainer.engine());
  return trained;
}

} // namespace

TEST_CASE("validations with micro-batches of their own are counted as planned and find the same loss",
          "[mpi][held-out]") {
  Communicator world = Communicator::world();
  RunConfig config = training_config(odd, {2, 4, 8 * world.size()});
  config.precision.recipe = GENERATE(RecipeName::fp32, RecipeName::mixed16);
  config.model_options.recompute = {GENERATE(Recompute::none, Recompute::full)};
  if (config.model_options.recompute.front() == Recompute::full) config.model_options.loss_chunks = 2;
  // Rows are computed alike; products and sums of a row may add in another order, of up to 4 channels values
  double const epsilon = config.precision.recipe == RecipeName::fp32 ? std::exp2(-24) : std::exp2(-9);
  double const bound = epsilon * std::sqrt(4.0 * static_cast<double>(odd.channels)) * 2 * 6; // parts, there and back
  for (ParallelConfig const& strategy : strategies(world.size())) {
    set_strategy(config, strategy);
    config.data.validation_micro = 0;
    Trained const usual = train(world, config);
    for (std::int64_t const micro : {1, 2, 4, 8}) {
      INFO("stage " << strategy.zero_stage << ", " << micro << " at a time");
      config.data.validation_micro = micro;
      Trained const own = train(world, config);
      CHECK_THAT(own.loss, Catch::Matchers::WithinRel(usual.loss, bound));
      CHECK((micro != 2 || own.loss == usual.loss)); // to the bit
      CHECK(own.hash == usual.hash);
      check_counts(world, config);
    }
  }
}

TEST_CASE("the loss of a validation has the same bits for every strategy, whatever its micro-batches",
          "[mpi][held-out]") {
  Communicator world = Communicator::world();
  RunConfig config = training_config(odd, {2, 4, 8 * world.size()});
  config.data.validation_micro = 4;
  config.optimizer.learning_rate = 0; // all have the same parameters
  std::optional<double> expected;
  for (ParallelConfig const& strategy : strategies(world.size())) {
    set_strategy(config, strategy);
    double const loss = train(world, config).loss;
    if (!expected) expected = loss;
    CHECK(loss == *expected);
  }
}
