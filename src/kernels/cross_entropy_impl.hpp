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

/// The sum of e^(x_v - maximum). keep(v, e^(x_v - maximum)) is called once for every element, after x_v was read for
/// the last time.
template <class T, class Keep>
KOKKOS_INLINE_FUNCTION double sum_of_powers(Team const& team, Index vocab, T const* row, float maximum,
                                            Keep const& keep) {
  return row_sum(team, vocab, [&](Index v) {
    float const power = exponential(to_float(row[v]) - maximum);
    keep(v, power);
    return power;
  });
}

template <class T, class Keep>
KOKKOS_INLINE_FUNCTION SoftmaxStatistics softmax_statistics(Team const& team, Index vocab, T const* row,
                                                            Keep const& keep) {
  float const maximum = row_max(team, vocab, [&](Index v) { return to_float(row[v]); });
  return {maximum, sum_of_powers<T>(team, vocab, row, maximum, keep)};
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

namespace Impl {

/// Rows of a slice of the logits.
template <class T>
Index require_slice(char const* what, Matrix<T> const& logits, Index valid, Vector<float const> const& maxima) {
  TRAINSTONE_REQUIRE(0 <= valid && valid <= extent(logits, 1), "{}: {} valid columns of {}", what, valid,
                     logits.extent(1));
  require_shape(what, maxima, {extent(logits, 0)});
  return extent(logits, 0);
}

} // namespace Impl

template <class T>
void cross_entropy_maximum(ExecutionSpace const& exec, Matrix<T const> logits, Index valid, Write mode,
                           Vector<float> maxima) {
  Index const rows = Impl::require_slice("cross_entropy_maximum: maxima", logits, valid, maxima);
  auto const elements = static_cast<std::uint64_t>(rows * valid);
  Kernel const kernel{.label = "trainstone::cross_entropy::maximum",
                      .flops = elements,
                      .bytes = elements * sizeof(T) + maxima.size() * sizeof(float)};
  launch_for(
      kernel, Impl::row_policy(exec, rows), KOKKOS_LAMBDA(Impl::Team const& team) {
        Index const n = team.league_rank();
        T const* const row = Impl::row_of(logits, n);
        float const maximum = Impl::row_max(team, valid, [&](Index v) { return to_float(row[v]); });
        Kokkos::single(Kokkos::PerTeam(team),
                       [&] { maxima(n) = mode == Write::add && maxima(n) > maximum ? maxima(n) : maximum; });
      });
}

namespace Impl {

/// Whether powers are kept is no value at run time: compilers would add up in another order where they store.
template <class T, bool keeps>
struct CrossEntropySums {
  Matrix<T> logits;
  Vector<std::int32_t const> targets;
  Index first, valid;
  Vector<float const> maxima;
  Matrix<double> sums;

  KOKKOS_INLINE_FUNCTION void operator()(Team const& team) const {
    Index const n = team.league_rank(), target = targets(n) - first;
    T* const row = row_of(logits, n);
    bool const is_here = 0 <= target && target < valid;
    double const target_logit = is_here ? static_cast<double>(to_float(row[target])) : 0.0;
    team.team_barrier();
    double const sum = sum_of_powers<T>(team, valid, row, maxima(n), [&](Index v, float power) {
      if constexpr (keeps) keep_power(row[v], power);
    });
    Kokkos::single(Kokkos::PerTeam(team), [&] {
      sums(n, 0) = sum;
      sums(n, 1) = target_logit;
    });
  }
};

} // namespace Impl

template <class T>
void cross_entropy_sums(ExecutionSpace const& exec, Matrix<T> logits, Vector<std::int32_t const> targets, Index first,
                        Index valid, Vector<float const> maxima, LogitsUse use, Matrix<double> sums) {
  Index const rows = Impl::require_slice("cross_entropy_sums: maxima", logits, valid, maxima);
  Impl::require_shape("cross_entropy_sums: targets", targets, {rows});
  Impl::require_shape("cross_entropy_sums: sums", sums, {rows, 2});
  auto const elements = static_cast<std::uint64_t>(rows * valid);
  Kernel const kernel{.label = "trainstone::cross_entropy::sums",
                      .flops = 3 * elements,
                      .bytes = elements * sizeof(T) +
                               targets.size() * (sizeof(std::int32_t) + sizeof(float) + 2 * sizeof(double))};
  if (use == LogitsUse::become_gradient)
    launch_for(kernel, Impl::row_policy(exec, rows),
               Impl::CrossEntropySums<T, true>{logits, targets, first, valid, maxima, sums});
  else
    launch_for(kernel, Impl::row_policy(exec, rows),
               Impl::CrossEntropySums<T, false>{logits, targets, first, valid, maxima, sums});
}

template <class T>
void cross_entropy_gradient(ExecutionSpace const& exec, Matrix<T> logits, Vector<std::int32_t const> targets,
                            Index first, Index valid, Vector<float const> maxima, Matrix<double const> sums,
                            float scale) {
  Index const rows = Impl::require_slice("cross_entropy_gradient: maxima", logits, valid, maxima);
  Index const columns = Impl::extent(logits, 1);
  Impl::require_shape("cross_entropy_gradient: targets", targets, {rows});
  Impl::require_shape("cross_entropy_gradient: sums", sums, {rows, 2});
  auto const elements = static_cast<std::uint64_t>(rows * valid);
  Kernel const kernel{.label = "trainstone::cross_entropy::gradient",
                      .flops = (Impl::keeps_powers<T> ? 1 : 3) * elements,
                      .bytes = (elements + logits.size()) * sizeof(T) +
                               targets.size() * (sizeof(std::int32_t) + sizeof(float) + 2 * sizeof(double))};
  launch_for(
      kernel, Impl::row_policy(exec, rows), KOKKOS_LAMBDA(Impl::Team const& team) {
        Index const n = team.league_rank(), target = targets(n) - first;
        T* const row = Impl::row_of(logits, n);
        float const maximum = maxima(n), factor = static_cast<float>(scale / sums(n, 0));
        Impl::row_for(team, valid, [&](Index v) {
          float const stored = to_float(row[v]);
          float const power = Impl::keeps_powers<T> ? stored : Impl::exponential(stored - maximum);
          row[v] = from_float<T>(power * factor);
        });
        Impl::row_for(team, columns - valid, [&](Index v) { row[valid + v] = from_float<T>(0.0F); });
        team.team_barrier();
        if (target < 0 || target >= valid) return;
        float const target_logit = static_cast<float>(sums(n, 1));
        Kokkos::single(Kokkos::PerTeam(team), [&] {
          row[target] = from_float<T>(Impl::exponential(target_logit - maximum) * factor - scale);
        });
      });
}

} // namespace trainstone
