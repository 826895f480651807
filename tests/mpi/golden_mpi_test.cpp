// What a golden curve sees: the first steps of class tiny against its released curve, as they are and with a mistake.

#include "report/benchmark_class.hpp"
#include "report/golden_checks.hpp"
#include "support/world.hpp"
#include "train/trainer.hpp"
#include "train/training_data.hpp"

#include <catch2/catch_test_macros.hpp>

#include <functional>
#include <string>
#include <vector>

using namespace trainstone;
using namespace trainstone::test;

namespace {

std::string const inputs = std::string(TRAINSTONE_TEST_DATA) + "/../../inputs/";

/// A mistake in a training.
struct Mistake {
  std::function<void(OptimizerConfig&)> optimizer = [](OptimizerConfig&) {};
  std::function<BatchSource(BatchSource)> batches = [](BatchSource source) { return source; };
  std::function<void(Trainer&)> after_step = [](Trainer&) {};
};

Deck const& tiny() {
  static Deck const deck = read_deck({inputs + "tiny.toml", {}, {}});
  return deck;
}

RunConfig config_of(Communicator const& world, Mistake const& mistake) {
  RunConfig config = resolve(tiny(), world.size());
  config.comm.buffers = to_string(world.buffers());
  mistake.optimizer(config.optimizer);
  return config;
}

/// The first steps of class tiny, and the names of the checks against its released curve that fail.
class FirstSteps {
public:
  FirstSteps(Communicator& world, Mistake const& mistake)
      : m_config(config_of(world, mistake)),
        m_data(m_config, ScanTokens::yes),
        m_plan(plan_run(m_config, world.rank(), world.topology())),
        m_trainer(m_exec, world, m_ledger, m_config, m_plan, {mistake.batches(m_data.batches().training), {}, 0},
                  m_data.steps()) {
    for (std::int64_t step = 1; step <= early_steps; ++step) {
      StepReport const report = m_trainer.step(step);
      mistake.after_step(m_trainer);
      m_losses.push_back(report.loss);
      m_early.norms.push_back(report.norm);
    }
    ParameterChanges const changes = m_trainer.parameter_changes();
    m_early.changes.assign(changes.begin(), changes.end());
    m_early.changed_after = early_steps;
  }

  std::string failed_checks(Rank ranks) const {
    GoldenCurve golden = find_golden_curve(inputs + "golden/tiny.json", golden_key(tiny(), ranks)).value();
    golden.losses.resize(m_losses.size());
    std::string failed;
    for (Check const& check : compare_with_golden(golden, {.losses = m_losses, .early = m_early})) {
      UNSCOPED_INFO(check.name << " " << check.value << " limit " << check.limit << ": " << check.detail);
      if (!check.passed) failed += check.name + " ";
    }
    return failed;
  }

private:
  ExecutionSpace m_exec;
  RunConfig m_config;
  TrainingData m_data;
  RunPlan m_plan;
  MemoryLedger m_ledger;
  Trainer m_trainer;
  std::vector<double> m_losses;
  EarlySteps m_early;
};

std::string failed_with(Mistake const& mistake) {
  Communicator world = test::world();
  return FirstSteps(world, mistake).failed_checks(world.size());
}

/// Two ranks: a training of class tiny takes more than a second.
void skip_but_on_two_ranks() {
  if (Communicator::world().size() != 2) SKIP("two ranks are enough");
}

} // namespace

TEST_CASE("a training of class tiny follows its released curve", "[mpi][golden]") {
  skip_but_on_two_ranks();
  CHECK(failed_with({}).empty());
}

TEST_CASE("half the learning rate does not follow the curve", "[mpi][golden]") {
  skip_but_on_two_ranks();
  CHECK(failed_with({.optimizer = [](OptimizerConfig& optimizer) { optimizer.learning_rate /= 2; }}) ==
        "loss-curve gradient-norms parameter-changes ");
}

TEST_CASE("a missing weight decay does not follow the curve", "[mpi][golden]") {
  skip_but_on_two_ranks();
  CHECK(failed_with({.optimizer = [](OptimizerConfig& optimizer) { optimizer.weight_decay = 0; }}) ==
        "loss-curve gradient-norms parameter-changes ");
}

TEST_CASE("ten times the epsilon does not follow the curve, which the losses alone do not show", "[mpi][golden]") {
  skip_but_on_two_ranks();
  CHECK(failed_with({.optimizer = [](OptimizerConfig& optimizer) { optimizer.epsilon *= 10; }}) ==
        "gradient-norms parameter-changes ");
}

TEST_CASE("a tensor that is never updated does not follow the curve", "[mpi][golden]") {
  skip_but_on_two_ranks();
  auto const freeze = [](Trainer& trainer) {
    ParameterTable const table(resolve(tiny(), 2).model, 2);
    ParameterTensor const& bias = table.find(Tensor::attprojb, 3); // begins with zeros
    Range const here = range_in_share(trainer.engine().plan(), bias);
    Vector<float> const group = trainer.engine().master_share(bias.group);
    Kokkos::deep_copy(ExecutionSpace(), Vector<float>(group.data() + here.begin, static_cast<std::size_t>(here.size())),
                      0.0F);
  };
  CHECK(failed_with({.after_step = freeze}).ends_with("parameter-changes "));
}

TEST_CASE("gradients of half of the ranks do not follow the curve", "[mpi][golden]") {
  skip_but_on_two_ranks();
  // what rank 0 alone would bring to a mean over both
  auto const of_first_rank = [](BatchSource const& source) -> BatchSource {
    return [source](std::int64_t batch, Index /*micro_batch*/, std::span<std::int32_t> inputs,
                    std::span<std::int32_t> targets) { source(batch, 0, inputs, targets); };
  };
  CHECK(failed_with({.batches = of_first_rank}) == "loss-curve gradient-norms parameter-changes ");
}
