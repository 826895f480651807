#include "parallel/engine/optimizer_update.hpp"

#include "core/error.hpp"
#include "kernels/optimizer.hpp"

namespace trainstone {

namespace {

template <class Gradient, class Parameter>
void update(ExecutionSpace const& exec, OptimizerConfig const& optimizer, UpdateNumbers const& numbers,
            std::span<UpdatePiece const> pieces, Vector<Gradient const> gradient, Vector<float> master,
            std::span<Vector<float> const> moments, Vector<Parameter> parameter) {
  TRAINSTONE_REQUIRE(std::ssize(moments) == optimizer.moments(), "an optimizer of {} moments is given {}",
                     optimizer.moments(), moments.size());
  auto const decay = static_cast<float>(optimizer.weight_decay);
  if (optimizer.type == OptimizerType::sgd) {
    SgdStep const step{.learning_rate = static_cast<float>(numbers.learning_rate),
                       .momentum = static_cast<float>(optimizer.momentum),
                       .weight_decay = decay,
                       .gradient_scale = static_cast<float>(numbers.gradient_scale),
                       .pieces = pieces};
    Vector<float> const velocity = moments.empty() ? Vector<float>() : moments[0];
    sgd_update<Gradient, Parameter>(exec, gradient, master, velocity, parameter, step);
    return;
  }
  AdamStep const step{.learning_rate = static_cast<float>(numbers.learning_rate),
                      .beta1 = static_cast<float>(optimizer.betas[0]),
                      .beta2 = static_cast<float>(optimizer.betas[1]),
                      .epsilon = static_cast<float>(optimizer.epsilon),
                      .weight_decay = decay,
                      .gradient_scale = static_cast<float>(numbers.gradient_scale),
                      .step = numbers.step,
                      .pieces = pieces};
  auto const adam =
      optimizer.type == OptimizerType::adamw ? adamw_update<Gradient, Parameter> : adam_update<Gradient, Parameter>;
  adam(exec, gradient, master, moments[0], moments[1], parameter, step);
}

} // namespace

void update_parameters(ExecutionSpace const& exec, OptimizerConfig const& optimizer, UpdateNumbers const& numbers,
                       std::span<UpdatePiece const> pieces, ConstStoredVector gradient, Vector<float> master,
                       std::span<Vector<float> const> moments, StoredVector parameter) {
  with_storage(parameter.storage, [&]<class T>() {
    if (gradient.storage == Storage::fp32)
      update<float, T>(exec, optimizer, numbers, pieces, gradient.as<float>(), master, moments, parameter.as<T>());
    else
      update<T, T>(exec, optimizer, numbers, pieces, gradient.as<T>(), master, moments, parameter.as<T>());
  });
}

} // namespace trainstone
