// What a golden curve sees: the first steps of a class against its released curve, as they are and with a mistake.
// All tests include class tiny. In class small every case takes many minutes, so these cases run only by name:
// mpiexec -n 2 build/release/test_mpi "class small without weight decay*", or all of them with "[class-small]".

#include "deck/benchmark_class.hpp"
#include "result/golden_checks.hpp"
#include "support/fixtures.hpp"
#include "support/master_part.hpp"
#include "support/world.hpp"
#include "train/data/training_data.hpp"
#include "train/planned_trainer.hpp"

#include <catch2/catch_test_macros.hpp>

#include <functional>
#include <map>
#include <string>
#include <vector>

using namespace trainstone;
using namespace trainstone::test;

namespace {

/// A mistake in a training.
struct Mistake {
  char const* name;
  std::function<void(OptimizerConfig&)> optimizer = [](OptimizerConfig&) {};
  std::function<BatchSource(BatchSource)> batches = [](BatchSource source) { return source; };
  std::function<void(Trainer&)> after_step = [](Trainer&) {};
};

RunConfig config_of(Communicator const& world, Deck const& deck, Mistake const& mistake) {
  RunConfig config = resolve(deck, world.size());
  mistake.optimizer(config.optimizer);
  return config;
}

/// The first steps of a class, and the names of the checks against its released curve that fail.
class FirstSteps {
public:
  FirstSteps(Communicator& world, Deck const& deck, Mistake const& mistake)
      : m_config(config_of(world, deck, mistake)),
        m_data(m_config, ScanTokens::yes),
        m_training(ExecutionSpace(), world, resolve_run(m_config, world.topology(), {.buffers = world.buffers()}),
                   {mistake.batches(m_data.batches().training), {}, 0}, m_data.steps()) {
    Trainer& trainer = m_training.trainer;
    for (std::int64_t step = 1; step <= early_steps; ++step) {
      StepReport const report = trainer.step(step);
      mistake.after_step(trainer);
      m_losses.push_back(report.loss);
      m_early.norms.push_back(report.norm);
    }
    ParameterChanges const changes = trainer.parameter_changes();
    m_early.changes.assign(changes.begin(), changes.end());
    m_early.changed_after = early_steps;
  }

  std::string failed_checks(GoldenCurve golden) const {
    golden.losses.resize(m_losses.size());
    bool const is_exact = m_config.precision.recipe == RecipeName::fp32;
    std::string failed;
    for (Check const& check : compare_with_golden(golden, {.losses = m_losses,
                                                           .early = m_early,
                                                           .products = is_exact ? Products::exact : Products::rounded,
                                                           .is_bf16_of_fp32 = !is_exact})) {
      UNSCOPED_INFO(check.name << " " << check.value << " limit " << check.limit << ": " << check.detail);
      if (!check.passed) failed += check.name + " ";
    }
    return failed;
  }

private:
  RunConfig m_config;
  TrainingData m_data;
  PlannedTrainer m_training;
  std::vector<double> m_losses;
  EarlySteps m_early;
};

using Overrides = std::vector<std::string>;
Overrides const in_bf16{"precision.recipe=mixed16", "precision.storage=bf16"};

std::string failed_with(std::string const& benchmark_class, Mistake const& mistake, Overrides const& overrides) {
  Communicator world = test::world();
  Deck const deck = read_deck({inputs_folder() / (benchmark_class + ".toml"), overrides, {}});
  std::string const key = golden_key_in_fp32(deck, world.size()).value_or(golden_key(deck, world.size()));
  GoldenCurve const golden = find_golden_curve(golden_path(deck.path), key).value();
  return FirstSteps(world, deck, mistake).failed_checks(golden);
}

/// Two ranks: a training of class tiny takes more than a second.
void skip_but_on_two_ranks() {
  if (Communicator::world().size() != 2) SKIP("two ranks are enough");
}

/// Sets a bias of a block, which began with zeros, back to zeros.
void freeze_a_bias(Trainer& trainer) {
  Kokkos::deep_copy(ExecutionSpace(), test::master_part(trainer.engine(), Tensor::attprojb, 3), 0.0F);
}

/// What rank 0 alone would bring to a mean over both ranks.
BatchSource of_first_rank(BatchSource const& source) {
  return [source](std::int64_t batch, Index /*micro_batch*/, std::span<std::int32_t> tokens,
                  std::span<std::int32_t> targets) { source(batch, 0, tokens, targets); };
}

char const* const no_check = "";
char const* const all_checks = "loss-curve gradient-norms parameter-changes ";

Mistake const none{.name = "none"};
Mistake const half_the_rate{.name = "half the learning rate",
                            .optimizer = [](OptimizerConfig& optimizer) { optimizer.learning_rate /= 2; }};
Mistake const no_decay{.name = "no weight decay",
                       .optimizer = [](OptimizerConfig& optimizer) { optimizer.weight_decay = 0; }};
Mistake const ten_times_epsilon{.name = "ten times the epsilon",
                                .optimizer = [](OptimizerConfig& optimizer) { optimizer.epsilon *= 10; }};
Mistake const frozen_tensor{.name = "a tensor that is never updated", .after_step = freeze_a_bias};
Mistake const half_of_the_ranks{.name = "gradients of half of the ranks", .batches = of_first_rank};

/// \param[in] failed  the checks that fail because of the mistake, and no others
void check(std::string const& benchmark_class, Mistake const& mistake, char const* failed,
           Overrides const& overrides = {}) {
  skip_but_on_two_ranks();
  INFO("mistake: " << mistake.name);
  CHECK(failed_with(benchmark_class, mistake, overrides) == failed);
}

} // namespace

TEST_CASE("a training of class tiny follows its released curve, and none with a mistake does", "[mpi][golden]") {
  check("tiny", none, no_check);
  check("tiny", half_the_rate, all_checks);
  check("tiny", no_decay, all_checks);
  check("tiny", ten_times_epsilon, "gradient-norms parameter-changes "); // its losses alone do not show the epsilon
  check("tiny", frozen_tensor, all_checks);
  check("tiny", half_of_the_ranks, all_checks);
}

TEST_CASE("a training of class tiny in bf16 follows the curve of fp32, and none with a gross mistake does",
          "[mpi][golden]") {
  check("tiny", none, no_check, in_bf16);
  check("tiny", half_the_rate, all_checks, in_bf16);
  check("tiny", ten_times_epsilon, "parameter-changes ", in_bf16);
  check("tiny", half_of_the_ranks, all_checks, in_bf16);
}

TEST_CASE("class small in bf16 follows the curve of fp32", "[.][class-small]") {
  check("small", none, no_check, in_bf16);
}

TEST_CASE("class small in bf16 with half the learning rate fails all checks", "[.][class-small]") {
  check("small", half_the_rate, all_checks, in_bf16);
}

TEST_CASE("class small in bf16 with gradients of half of the ranks fails all checks", "[.][class-small]") {
  check("small", half_of_the_ranks, all_checks, in_bf16);
}

TEST_CASE("class small as it is follows its released curve", "[.][class-small]") { check("small", none, no_check); }

TEST_CASE("class small with half the learning rate fails all checks", "[.][class-small]") {
  check("small", half_the_rate, all_checks);
}

TEST_CASE("class small without weight decay fails all checks", "[.][class-small]") {
  check("small", no_decay, all_checks);
}

TEST_CASE("class small with ten times the epsilon fails all checks", "[.][class-small]") {
  check("small", ten_times_epsilon, all_checks);
}

TEST_CASE("class small with a tensor that is never updated fails all checks", "[.][class-small]") {
  check("small", frozen_tensor, all_checks);
}

TEST_CASE("class small with gradients of half of the ranks fails all checks", "[.][class-small]") {
  check("small", half_of_the_ranks, all_checks);
}
