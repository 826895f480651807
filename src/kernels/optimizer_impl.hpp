#pragma once

// Bodies of optimizer.hpp; included by optimizer.cpp alone.

#include "kernels/optimizer.hpp"

#include "core/launch.hpp"
#include "kernels/common/row.hpp"
#include "kernels/common/shapes.hpp"

#include <cmath>
#include <type_traits>

namespace trainstone {

namespace Impl {

/// 1 / (1 - beta^step)
inline float bias_correction(float beta, std::int64_t step) {
  return static_cast<float>(1.0 / (1.0 - std::pow(static_cast<double>(beta), static_cast<double>(step))));
}

// Rules: what happens to one element. at(first) is the rule of a chunk; operator() takes the gradient and the old
// parameter of element i, updates the rule's own state and returns the new parameter.

template <bool decoupled_decay>
struct AdamRule {
  float* m;
  float* v;
  AdamStep step;
  float m_correction;
  float v_correction;

  AdamRule(Vector<float> const& first_moment, Vector<float> const& second_moment, AdamStep const& numbers)
      : m(first_moment.data()),
        v(second_moment.data()),
        step(numbers),
        m_correction(bias_correction(step.beta1, step.step)),
        v_correction(bias_correction(step.beta2, step.step)) {}

  KOKKOS_FUNCTION AdamRule at(Index first) const {
    AdamRule chunk = *this;
    chunk.m += first;
    chunk.v += first;
    return chunk;
  }

  KOKKOS_FUNCTION float operator()(Index i, float gradient, float p) const {
    float const g =
        decoupled_decay ? gradient * step.gradient_scale : gradient * step.gradient_scale + step.weight_decay * p;
    float const new_m = step.beta1 * m[i] + (1.0F - step.beta1) * g;
    float const new_v = step.beta2 * v[i] + (1.0F - step.beta2) * (g * g);
    float const direction = new_m * m_correction / (Kokkos::sqrt(new_v * v_correction) + step.epsilon);
    m[i] = new_m;
    v[i] = new_v;
    return p - step.learning_rate * (decoupled_decay ? direction + step.weight_decay * p : direction);
  }
};

struct SgdRule {
  SgdStep step;

  KOKKOS_FUNCTION SgdRule at(Index /*first*/) const { return *this; }

  KOKKOS_FUNCTION float operator()(Index /*i*/, float gradient, float p) const {
    return p - step.learning_rate * (gradient * step.gradient_scale + step.weight_decay * p);
  }
};

struct MomentumRule {
  float* velocity;
  SgdStep step;

  KOKKOS_FUNCTION MomentumRule at(Index first) const { return {velocity + first, step}; }

  KOKKOS_FUNCTION float operator()(Index i, float gradient, float p) const {
    velocity[i] = step.momentum * velocity[i] + (gradient * step.gradient_scale + step.weight_decay * p);
    return p - step.learning_rate * velocity[i];
  }
};

/// Writes the parameter that the model computes with; of fp32 that is the master copy, which has been written.
KOKKOS_INLINE_FUNCTION void write_rounded(float* /*parameter*/, float /*value*/) {}
template <class Parameter>
KOKKOS_INLINE_FUNCTION void write_rounded(Parameter* parameter, float value) {
  *parameter = from_float<Parameter>(value);
}

/// What the update of one element reads and writes; `states` are fp32 values of the optimizer.
template <class Gradient, class Parameter>
constexpr std::uint64_t update_bytes(std::uint64_t states) {
  std::uint64_t const rounded = std::is_same_v<Parameter, float> ? 0 : sizeof(Parameter);
  return sizeof(Gradient) + 2 * sizeof(float) * (1 + states) + rounded;
}

template <class Gradient, class Parameter>
void require_update_shapes(Vector<Gradient const> const& gradient, Vector<float> const& master,
                           Vector<Parameter> const& parameter) {
  require_shape("optimizer: master", master, {extent(gradient, 0)});
  require_shape("optimizer: parameter", parameter, {extent(gradient, 0)});
  if constexpr (std::is_same_v<Parameter, float>)
    TRAINSTONE_REQUIRE(parameter.data() == master.data(),
                       "optimizer: fp32 parameters at {} are not their master copy at {}",
                       static_cast<void const*>(parameter.data()), static_cast<void const*>(master.data()));
}

template <class Rule, class Gradient, class Parameter>
void update_elements(ExecutionSpace const& exec, Kernel const& kernel, Vector<Gradient const> const& gradient,
                     Rule const& rule, Vector<float> const& master, Vector<Parameter> const& parameter) {
  Index const count = extent(gradient, 0);
  launch_for(
      kernel, row_policy(exec, divide_up(count, chunk_size)), KOKKOS_LAMBDA(Team const& team) {
        Index const first = team.league_rank() * chunk_size;
        Gradient const* const g_chunk = gradient.data() + first;
        float* const p_chunk = master.data() + first;
        Parameter* const rounded_chunk = parameter.data() + first;
        Rule const rule_of_chunk = rule.at(first);
        row_for(team, minimum(chunk_size, count - first), [&](Index i) {
          float const updated = rule_of_chunk(i, to_float(g_chunk[i]), p_chunk[i]);
          p_chunk[i] = updated;
          write_rounded(rounded_chunk + i, updated);
        });
      });
}

template <bool decoupled_decay, class Gradient, class Parameter>
void adam_like_update(ExecutionSpace const& exec, char const* label, Vector<Gradient const> const& gradient,
                      Vector<float> const& master, Vector<float> const& m, Vector<float> const& v,
                      Vector<Parameter> const& parameter, AdamStep const& step) {
  require_update_shapes(gradient, master, parameter);
  require_shape("optimizer: m", m, {extent(gradient, 0)});
  require_shape("optimizer: v", v, {extent(gradient, 0)});
  TRAINSTONE_REQUIRE(step.step >= 1, "optimizer: step {}, steps count from 1", step.step);
  Kernel const kernel{.label = label,
                      .phase = Phase::optimizer,
                      .flops = 17 * gradient.size(),
                      .bytes = gradient.size() * update_bytes<Gradient, Parameter>(2)};
  update_elements(exec, kernel, gradient, AdamRule<decoupled_decay>(m, v, step), master, parameter);
}

} // namespace Impl

template <class Gradient, class Parameter>
void adamw_update(ExecutionSpace const& exec, Vector<Gradient const> gradient, Vector<float> master, Vector<float> m,
                  Vector<float> v, Vector<Parameter> parameter, AdamStep const& step) {
  Impl::adam_like_update<true>(exec, "trainstone::optimizer::adamw", gradient, master, m, v, parameter, step);
}

template <class Gradient, class Parameter>
void adam_update(ExecutionSpace const& exec, Vector<Gradient const> gradient, Vector<float> master, Vector<float> m,
                 Vector<float> v, Vector<Parameter> parameter, AdamStep const& step) {
  Impl::adam_like_update<false>(exec, "trainstone::optimizer::adam", gradient, master, m, v, parameter, step);
}

template <class Gradient, class Parameter>
void sgd_update(ExecutionSpace const& exec, Vector<Gradient const> gradient, Vector<float> master,
                Vector<float> velocity, Vector<Parameter> parameter, SgdStep const& step) {
  bool const has_momentum = step.momentum != 0.0F;
  Impl::require_update_shapes(gradient, master, parameter);
  Impl::require_shape("optimizer: velocity", velocity, {has_momentum ? Impl::extent(gradient, 0) : 0});
  Kernel const kernel{.label = has_momentum ? "trainstone::optimizer::sgd_momentum" : "trainstone::optimizer::sgd",
                      .phase = Phase::optimizer,
                      .flops = (has_momentum ? 7 : 5) * gradient.size(),
                      .bytes = gradient.size() * Impl::update_bytes<Gradient, Parameter>(has_momentum ? 1 : 0)};
  if (has_momentum) {
    Impl::update_elements(exec, kernel, gradient, Impl::MomentumRule{velocity.data(), step}, master, parameter);
  } else {
    Impl::update_elements(exec, kernel, gradient, Impl::SgdRule{step}, master, parameter);
  }
}

} // namespace trainstone
