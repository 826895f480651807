#include "parallel/engine/optimizer_update.hpp"

#include "core/error.hpp"
#include "kernels/optimizer.hpp"
#include "support/views.hpp"

#include <catch2/catch_test_macros.hpp>

#include <vector>

using namespace trainstone;
using namespace trainstone::test;

namespace {

constexpr Index count = 7;

OptimizerConfig config_of(OptimizerType type, double momentum) {
  OptimizerConfig config;
  config.type = type;
  config.betas = {0.8, 0.9};
  config.epsilon = 1e-3;
  config.weight_decay = 0.25;
  config.momentum = momentum;
  return config;
}

/// Parameters and moments, all different, on their way through one step.
struct State {
  DeviceTensor<float> parameter{random_values(count, 1)}, first{random_values(count, 2)},
      second{random_values(count, 3, 0.5, 1.0)};

  std::vector<std::vector<float>> values() const { return {parameter.values(), first.values(), second.values()}; }
};

State updated(OptimizerConfig const& optimizer, bool decays) {
  ExecutionSpace const exec;
  State state;
  std::vector<Vector<float>> moments{state.first.vector(), state.second.vector()};
  moments.resize(static_cast<std::size_t>(optimizer.moments()));
  DeviceTensor<float> const gradient(random_values(count, 4));
  UpdatePiece const all{0, count, decays};
  update_parameters(exec, optimizer, {0.125, 0.5, 3}, {&all, 1}, gradient.vector(), state.parameter.vector(), moments,
                    state.parameter.vector());
  return state;
}

/// What the kernel makes of the same numbers.
State expected(OptimizerType type, float momentum, float decay) {
  ExecutionSpace const exec;
  State state;
  DeviceTensor<float> const gradient(random_values(count, 4));
  Vector<float> const p = state.parameter.vector(), m = state.first.vector(), v = state.second.vector();
  AdamStep const adam{0.125F, 0.8F, 0.9F, 1e-3F, decay, 0.5F, 3};
  SgdStep const sgd{0.125F, momentum, decay, 0.5F};
  switch (type) {
  case OptimizerType::adamw: adamw_update<float, float>(exec, gradient.vector(), p, m, v, p, adam); break;
  case OptimizerType::adam: adam_update<float, float>(exec, gradient.vector(), p, m, v, p, adam); break;
  case OptimizerType::sgd:
    sgd_update<float, float>(exec, gradient.vector(), p, momentum > 0 ? m : Vector<float>(), p, sgd);
  }
  return state;
}

} // namespace

TEST_CASE("the configured optimizer is the kernel of that name with the numbers of the deck", "[optimizer]") {
  for (bool const decays : {true, false}) {
    float const decay = decays ? 0.25F : 0.0F;
    for (OptimizerType const type : {OptimizerType::adamw, OptimizerType::adam})
      CHECK(updated(config_of(type, 0), decays).values() == expected(type, 0, decay).values());
    for (float const momentum : {0.0F, 0.5F})
      CHECK(updated(config_of(OptimizerType::sgd, static_cast<double>(momentum)), decays).values() ==
            expected(OptimizerType::sgd, momentum, decay).values());
  }
}

TEST_CASE("an optimizer with other than its own number of moments is refused", "[optimizer]") {
  ExecutionSpace const exec;
  State const state;
  std::vector<Vector<float>> const one{state.first.vector()};
  for (OptimizerType const type : {OptimizerType::adamw, OptimizerType::adam, OptimizerType::sgd})
    CHECK_THROWS_AS((update_parameters(exec, config_of(type, 0), {0.125, 0.5, 3}, {}, state.second.vector(),
                                       state.parameter.vector(), one, state.parameter.vector())),
                    Error);
}
