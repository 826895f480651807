// What is measured for predictions of a step: times of every part, the same on all ranks, of ranks that do not
// communicate.

#include "train/offload_measurement.hpp"
#include "train/part_measurement.hpp"

#include "comm/execution/control.hpp"
#include "core/error.hpp"
#include "support/training_run.hpp"
#include "train/plan/step_prediction.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

using namespace trainstone;
using namespace trainstone::test;

namespace {

RunConfig config_of(RecipeName recipe, ReductionMode reduction, Rank ranks) {
  RunConfig config = training_config({6, 3, 12, 11, 29}, {2, 1, 2 * ranks});
  config.precision.recipe = recipe;
  config.parallel.strategy = Strategy::zero;
  config.parallel.zero_stage = 3;
  config.parallel.reduction = reduction;
  return config;
}

} // namespace

TEST_CASE("the parts of a deck are measured without its strategy, and all ranks know the same", "[mpi][parts]") {
  auto const recipe = GENERATE(RecipeName::fp32, RecipeName::mixed16);
  auto const reduction = GENERATE(ReductionMode::fast, ReductionMode::ordered);
  Communicator world = Communicator::world();
  RunConfig const config = measured_training(config_of(recipe, reduction, world.size()));
  CHECK(config.model.layers == 4);
  CHECK(config.model.channels == 12);
  CHECK(config.batch == BatchConfig{2, 2, 4});
  ResolvedRun const training = resolve_run(config, Topology::one_node(1));
  MemoryLedger ledger;
  PartTimes const times =
      measure_parts(ExecutionSpace(), world, ledger, training, {.seconds = 0, .fewest_steps = 2, .most_steps = 2});
  CHECK(ledger.high_water().total() >= plan_run(training, 0).memory_bytes().total());
  REQUIRE(times.parts.size() == 4);
  for (auto const& [kind, part] : times.parts) {
    INFO(to_string(kind));
    CHECK(part.forward > 0);
    CHECK(part.backward > 0);
    CHECK(part.backward_adding > 0);
  }
  for (double const time : {times.load, times.loss, times.norm_of_element, times.update_of_element,
                            times.copy_of_element, times.add_of_element})
    CHECK(time > 0);
  for (double const time : {times.parts.at(PartKind::mlp).forward, times.update_of_element})
    CHECK(
        std::ranges::equal(all_gather_values(world, time), std::vector(static_cast<std::size_t>(world.size()), time)));
}

TEST_CASE("what blocks compute again is measured, whichever blocks do", "[mpi][parts]") {
  using enum Recompute;
  auto const recompute = GENERATE(values<std::vector<Recompute>>(
      {{full}, {none, none, none, none, none, full}, {none, selective, full, none, selective, full}}));
  Communicator world = Communicator::world();
  RunConfig config = config_of(RecipeName::fp32, ReductionMode::fast, world.size());
  config.model_options.recompute = recompute;
  config.model.layers = std::ssize(recompute);
  MemoryLedger ledger;
  PartTimes const times =
      measure_parts(ExecutionSpace(), world, ledger, resolve_run(measured_training(config), Topology::one_node(1)),
                    {.seconds = 0, .fewest_steps = 2, .most_steps = 2});
  PartTimes::OfPart const &attention = times.parts.at(PartKind::attention), &mlp = times.parts.at(PartKind::mlp);
  CHECK(attention.recompute_full > 0);
  CHECK(mlp.recompute_full > 0);
  CHECK((attention.recompute_selective > 0) == (std::ranges::find(recompute, selective) != recompute.end()));
  CHECK(mlp.recompute_selective == 0); // which keeps no probabilities
}

TEST_CASE("pieces of passes are measured of a rank that shares layers with others", "[mpi][parts]") {
  Communicator world = Communicator::world();
  RunConfig config = config_of(RecipeName::fp32, ReductionMode::fast, world.size());
  config.parallel.tensor = 3; // of three heads
  config.parallel.sequence = GENERATE(false, true);
  config.data.sequence = 6;
  config.model_options.recompute = {Recompute::full};
  MemoryLedger ledger;
  PartTimes const times =
      measure_parts(ExecutionSpace(), world, ledger, resolve_run(measured_training(config), Topology::one_node(1)),
                    {.seconds = 0, .fewest_steps = 2, .most_steps = 2});
  std::map<PassOfPart, std::size_t> pieces;
  for (auto const& [pass, shares] : times.piece_shares) {
    INFO(to_string(pass));
    pieces[pass] = shares.size();
    CHECK(std::abs(std::accumulate(shares.begin(), shares.end(), 0.0) - 1) < 1e-12);
    CHECK(std::ranges::all_of(shares, [](double share) { return share > 0; }));
    for (double const share : shares)
      CHECK(std::ranges::equal(all_gather_values(world, share),
                               std::vector(static_cast<std::size_t>(world.size()), share)));
  }
  bool const shares = config.parallel.sequence;
  CHECK(pieces[{PartKind::attention, Pass::forward}] == (shares ? 3 : 2));
  CHECK(pieces[{PartKind::mlp, Pass::backward}] == (shares ? 7 : 4));
  CHECK(pieces[{PartKind::head, Pass::loss}] == 3);
  CHECK(pieces[{PartKind::attention, Pass::recompute, Recompute::full}] == (shares ? 3 : 2));
}

TEST_CASE("a step is predicted from measured parts", "[mpi][parts]") {
  Communicator world = Communicator::world();
  RunConfig const config = config_of(RecipeName::fp32, ReductionMode::fast, world.size());
  MemoryLedger ledger;
  ResolvedRun const training = resolve_run(measured_training(config), Topology::one_node(1));
  PartTimes const times =
      measure_parts(ExecutionSpace(), world, ledger, training, {.seconds = 0, .fewest_steps = 2, .most_steps = 2});
  RunPlan const plan = plan_run(config, world.rank(), world.topology());
  StepTimeline const timeline = predict_timeline({plan}, times, uniform_machine({}), {});
  PartTimes::OfPart const attention = times.parts.at(PartKind::attention), mlp = times.parts.at(PartKind::mlp);
  CHECK(timeline.step > 6e9 * (attention.forward + attention.backward + mlp.forward + mlp.backward));
  CHECK(timeline.busiest().exposed() == 0);
}

TEST_CASE("updates of state in a file are measured with every optimizer and recipe, and all ranks know the same",
          "[mpi][parts][offload]") {
  Communicator world = Communicator::world();
  auto const recipe = GENERATE(RecipeName::fp32, RecipeName::mixed16, RecipeName::mixed20);
  auto const optimizer = GENERATE(OptimizerType::adamw, OptimizerType::sgd);
  OffloadMeasurement const measurement{.request_bytes = GENERATE(std::uint64_t{1}, std::uint64_t{5000}),
                                       .file_bytes = 64 << 10,
                                       .rounds = 1,
                                       .optimizer = {.type = optimizer},
                                       .types = state_types({.recipe = recipe})};
  MemoryLedger ledger;
  MeasuredOffload const measured = measure_offload(ExecutionSpace(), world, ledger, measurement);
  OffloadRates const& rates = measured.rates;
  for (double const rate : {rates.copy, rates.read, rates.write, rates.copy_beside_file, rates.update_of_element}) {
    CHECK(rate > 0);
    CHECK(std::isfinite(rate));
    CHECK(
        std::ranges::equal(all_gather_values(world, rate), std::vector(static_cast<std::size_t>(world.size()), rate)));
  }
  CHECK(measured.files.ranks == world.size());
  CHECK(ledger.high_water().total() > 0);
  CHECK(ledger.current().total() == 0);
}
