#pragma once

// Body of adamw.hpp; included by adamw.cpp alone.

#include "kernels/adamw.hpp"

#include "core/launch.hpp"
#include "kernels/row.hpp"
#include "kernels/shapes.hpp"

#include <cmath>

namespace trainstone {

template <class T>
void adamw_update(ExecutionSpace const& exec, Vector<T const> gradient, Vector<T> parameter, Vector<float> m,
                  Vector<float> v, AdamwStep const& step) {
  Index const count = Impl::extent(gradient, 0);
  Impl::require_shape("adamw_update: parameter", parameter, {count});
  Impl::require_shape("adamw_update: m", m, {count});
  Impl::require_shape("adamw_update: v", v, {count});
  TRAINSTONE_REQUIRE(step.step >= 1, "adamw_update: step {}, steps count from 1", step.step);

  double const exponent = static_cast<double>(step.step);
  float const m_correction = static_cast<float>(1.0 / (1.0 - std::pow(static_cast<double>(step.beta1), exponent)));
  float const v_correction = static_cast<float>(1.0 / (1.0 - std::pow(static_cast<double>(step.beta2), exponent)));
  Kernel const kernel{.label = "trainstone::adamw::update",
                      .phase = Phase::optimizer,
                      .flops = 15 * gradient.size(),
                      .bytes = gradient.size() * (3 * sizeof(T) + 4 * sizeof(float))};
  AdamwStep const values = step;
  launch_for(
      kernel, Impl::row_policy(exec, Impl::divide_up(count, Impl::chunk_size)), KOKKOS_LAMBDA(Impl::Team const& team) {
        Index const first = team.league_rank() * Impl::chunk_size;
        T const* const g_chunk = gradient.data() + first;
        T* const p_chunk = parameter.data() + first;
        float* const m_chunk = m.data() + first;
        float* const v_chunk = v.data() + first;
        Impl::row_for(team, Impl::minimum(Impl::chunk_size, count - first), [&](Index i) {
          float const g = to_float(g_chunk[i]) * values.gradient_scale;
          float const p = to_float(p_chunk[i]);
          float const new_m = values.beta1 * m_chunk[i] + (1.0F - values.beta1) * g;
          float const new_v = values.beta2 * v_chunk[i] + (1.0F - values.beta2) * (g * g);
          float const direction = new_m * m_correction / (Kokkos::sqrt(new_v * v_correction) + values.epsilon);
          m_chunk[i] = new_m;
          v_chunk[i] = new_v;
          p_chunk[i] = from_float<T>(p - values.learning_rate * (direction + values.weight_decay * p));
        });
      });
}

} // namespace trainstone
