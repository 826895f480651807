// How far parameters have changed, against the same computed on the host from whole groups, for every way to share
// them.

#include "parallel/engine/parameter_changes.hpp"

#include "core/host_copy.hpp"
#include "core/random.hpp"
#include "support/training_run.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include <cmath>
#include <utility>
#include <vector>

using namespace trainstone;
using namespace trainstone::test;

namespace {

GptConfig const odd{2, 3, 12, 11, 29};

RunConfig with_strategy(Communicator const& world, Strategy strategy, std::int64_t stage) {
  RunConfig config = training_config(odd, {2, 1, 2 * world.size()});
  config.parallel.strategy = strategy;
  config.parallel.zero_stage = stage;
  config.optimizer.weight_decay = 0.5;
  return config;
}

float initial_of(ParameterTensor const& tensor, std::int64_t element, std::int64_t seed) {
  if (tensor.initial.random_elements == 0) return static_cast<float>(tensor.initial.constant);
  auto const counter = static_cast<std::uint64_t>(tensor.initial.first_counter + element);
  return static_cast<float>(tensor.initial.deviation *
                            normal(static_cast<std::uint64_t>(seed), RandomStream::initial_values, counter));
}

/// Whether the element is one of the model's, and not a bias of keys.
bool counts(ParameterTensor const& tensor, std::int64_t element) {
  if (tensor.tensor == Tensor::wte) return element < odd.vocab * odd.channels;
  return tensor.tensor != Tensor::qkvb || element / odd.channels != 1;
}

std::vector<double> changes_on_host(TrainingRun& run) {
  std::vector<double> sums(tensor_kinds), elements(tensor_kinds);
  run.trainer.engine().read_parameters([&](Index group, ConstStoredVector whole) {
    std::vector<float> const values = copy_to_host(run.exec, whole, "trainstone::test: compared on the host");
    for (ParameterTensor const& tensor : run.plan.table.tensors()) {
      if (tensor.group != group) continue;
      Index const first = tensor.offset - run.plan.table.groups()[static_cast<std::size_t>(group)].offset;
      for (std::int64_t i = 0; i < tensor.size(); ++i) {
        if (!counts(tensor, i)) continue;
        auto const kind = static_cast<std::size_t>(tensor.tensor);
        sums[kind] += std::abs(static_cast<double>(values[static_cast<std::size_t>(first + i)]) -
                               static_cast<double>(initial_of(tensor, i, run.resolved.config.data.seed)));
        ++elements[kind];
      }
    }
  });
  for (std::size_t kind = 0; kind < sums.size(); ++kind) sums[kind] /= elements[kind];
  return sums;
}

} // namespace

TEST_CASE("changes of parameters are those of the whole model, however it is shared", "[mpi][golden]") {
  auto const& [strategy, stage] = GENERATE(values<std::pair<Strategy, std::int64_t>>(
      {{Strategy::ddp, 0}, {Strategy::zero, 1}, {Strategy::zero, 2}, {Strategy::zero, 3}, {Strategy::naive, 0}}));
  INFO(to_string(strategy) << " " << stage);
  Communicator world = Communicator::world();
  TrainingRun run(world, with_strategy(world, strategy, stage));
  CHECK(run.trainer.parameter_changes() == ParameterChanges{});
  for (std::int64_t step = 1; step <= 2; ++step) run.trainer.step(step);
  ParameterChanges const changes = run.trainer.parameter_changes();
  std::vector<double> const expected = changes_on_host(run);
  for (int kind = 0; kind < tensor_kinds; ++kind) {
    INFO(to_string(static_cast<Tensor>(kind)));
    auto const i = static_cast<std::size_t>(kind);
    CHECK(changes[i] > 0);
    CHECK_THAT(changes[i], Catch::Matchers::WithinRel(expected[i], 1e-12)); // sums in fp64, in another order
  }
}

TEST_CASE("a look at changes sends and starts what the plan says", "[mpi][golden]") {
  std::int64_t const stage = GENERATE(1, 3);
  Communicator world = Communicator::world();
  TrainingRun run(world, with_strategy(world, Strategy::zero, stage));
  run.trainer.finish();
  counters() = {};
  comm_counters() = {};
  run.trainer.parameter_changes();
  CHECK(total_launches(counters()) == run.plan.changes_launches);
  CHECK(comm_counters().total(Purpose::control) == run.plan.changes_sent);
  CHECK(comm_counters().total(Purpose::training) == Traffic());
}
