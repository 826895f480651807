#pragma once

// Bodies of cross_entropy.hpp; included by cross_entropy.cpp alone. Three passes over a row, which stays in the cache:
// maximum, sum of the powers, gradient (the loss alone takes two).

#include "kernels/cross_entropy.hpp"

#include "core/launch.hpp"
#include "kernels/common/math.hpp"
#include "kernels/common/row.hpp"
#include "kernels/common/shapes.hpp"

#include <type_traits>

namespace trainstone {

namespace Impl {

/// The maximum of a row and the sum of e^(x - maximum).
struct SoftmaxStatistics {
  float maximum;
  double sum;

  KOKKOS_INLINE_FUNCTION float loss(float target_logit) const {
    return static_cast<float>(Kokkos::log(sum) + (static_cast<double>(maximum) - static_cast<double>(target_logit)));
  }
};

/// A row of fp32 holds the powers until they are scaled; 16 bits would round them, and they are computed twice. So they
/// are on devices, where an exponential costs less than to write a row once more.
template <class T>
inline constexpr bool keeps_powers = host_reaches_memory && std::is_same_v<T, float>;

template <class T>
KOKKOS_INLINE_FUNCTION void keep_power([[maybe_unused]] T& logit, [[maybe_unused]] float power) {
  if constexpr (keeps_powers<T>) logit = power;
}

/// keep(v, e^(x_v - maximum)) is called once for every element, after x_v was read for the last time.
template <class T, class Keep>
KOKKOS_INLINE_FUNCTION SoftmaxStatistics softmax_statistics(Team const& team, Index vocab, T const* row,
                                                            Keep const& keep) {
  float const maximum = row_max(team, vocab, [&](Index v) { return to_float(row[v]); });
  double const sum = row_sum(team, vocab, [&](Index v) {
    float const power = exponential(to_float(row[v]) - maximum);
    keep(v, power);
    return power;
  });
  return {maximum, sum};
}

} // namespace Impl

template <class T>
void cross_entropy_forward(ExecutionSpace const& exec, Matrix<T const> logits, Vector<std::int32_t const> targets,
                           Index vocab, Vector<float> losses) {
  Index const rows = Impl::extent(logits, 0);
  TRAINSTONE_REQUIRE(0 < vocab && vocab <= Impl::extent(logits, 1), "cross_entropy_forward: vocab {} with {} columns",
                     vocab, logits.extent(1));
  Impl::require_shape("cross_entropy_forward: targets", targets, {rows});
  Impl::require_shape("cross_entropy_forward: losses", losses, {rows});
  std::uint64_t const elements = static_cast<std::uint64_t>(rows * vocab);
  Kernel const kernel{.label = "trainstone::cross_entropy::forward",
                      .flops = 4 * elements,
                      .bytes = elements * sizeof(T) + losses.size() * (sizeof(float) + sizeof(std::int32_t))};
  launch_for(
      kernel, Impl::row_policy(exec, rows), KOKKOS_LAMBDA(Impl::Team const& team) {
        Index const n = team.league_rank();
        T const* const row = Impl::row_of(logits, n);
        Impl::SoftmaxStatistics const statistics = Impl::softmax_statistics(team, vocab, row, [](Index, float) {});
        Kokkos::single(Kokkos::PerTeam(team), [&] { losses(n) = statistics.loss(to_float(row[targets(n)])); });
      });
}

template <class T>
void cross_entropy_backward_fused(ExecutionSpace const& exec, Matrix<T> logits, Vector<std::int32_t const> targets,
                                  Index vocab, float scale, Vector<float> losses) {
  Index const rows = Impl::extent(logits, 0), columns = Impl::extent(logits, 1);
  TRAINSTONE_REQUIRE(0 < vocab && vocab <= columns, "cross_entropy_backward_fused: vocab {} with {} columns", vocab,
                     columns);
  Impl::require_shape("cross_entropy_backward_fused: targets", targets, {rows});
  Impl::require_shape("cross_entropy_backward_fused: losses", losses, {rows});
  std::uint64_t const elements = static_cast<std::uint64_t>(rows * vocab);
  Kernel const kernel{.label = "trainstone::cross_entropy::backward",
                      .flops = (Impl::keeps_powers<T> ? 5 : 7) * elements,
                      .bytes = (elements + logits.size()) * sizeof(T) +
                               losses.size() * (sizeof(float) + sizeof(std::int32_t))};
  launch_for(
      kernel, Impl::row_policy(exec, rows), KOKKOS_LAMBDA(Impl::Team const& team) {
        Index const n = team.league_rank();
        Index const target = targets(n);
        T* const row = Impl::row_of(logits, n);
        float const target_logit = to_float(row[target]);
        Impl::SoftmaxStatistics const statistics = Impl::softmax_statistics<T>(
            team, vocab, row, [&](Index v, float power) { Impl::keep_power(row[v], power); });
        float const factor = static_cast<float>(scale / statistics.sum);
        float const target_gradient = Impl::exponential(target_logit - statistics.maximum) * factor - scale;
        team.team_barrier();
        Impl::row_for(team, vocab, [&](Index v) {
          float const stored = to_float(row[v]);
          float const power = Impl::keeps_powers<T> ? stored : Impl::exponential(stored - statistics.maximum);
          row[v] = from_float<T>(power * factor);
        });
        Impl::row_for(team, columns - vocab, [&](Index v) { row[vocab + v] = from_float<T>(0.0F); });
        team.team_barrier();
        Kokkos::single(Kokkos::PerTeam(team), [&] {
          row[target] = from_float<T>(target_gradient);
          losses(n) = statistics.loss(target_logit);
        });
      });
}

} // namespace trainstone
