#pragma once

// Bodies of cross_entropy.hpp; included by cross_entropy.cpp alone. On hosts three passes over a row, which stays in
// the cache: maximum, sum of the powers, gradient (the loss alone takes two). On devices two, maximum and sum being
// found together: the rows in work stay in the second-level cache.

#include "kernels/cross_entropy.hpp"

#include "kernels/common/math.hpp"
#include "kernels/common/shapes.hpp"
#include "kernels/logits_rows.hpp"

namespace trainstone {

namespace Impl {

template <class T>
struct CrossEntropyLoss {
  T const* logits;
  Index columns;
  std::int32_t const* targets;
  float* losses;

  template <class Logits>
  KOKKOS_FUNCTION void operator()(Team const& team, Logits const& row, Index n) const {
    SoftmaxStatistics const statistics = row.template statistics<false>();
    Kokkos::single(Kokkos::PerTeam(team),
                   [&] { losses[n] = statistics.loss(to_float(logits[n * columns + targets[n]])); });
  }
};

template <class T>
struct CrossEntropyBackward {
  T* logits;
  Index columns;
  std::int32_t const* targets;
  float* losses;
  float scale;

  template <class Logits>
  KOKKOS_FUNCTION void operator()(Team const& team, Logits const& row, Index n) const {
    T* const of_target = logits + n * columns + targets[n];
    float const target_logit = to_float(*of_target);
    SoftmaxStatistics const statistics = row.template statistics<true>();
    float const factor = static_cast<float>(scale / statistics.sum);
    float const target_gradient = exponential_of<T>(target_logit - statistics.maximum) * factor - scale;
    team.team_barrier();
    row.become_weights(statistics.maximum, factor);
    team.team_barrier();
    Kokkos::single(Kokkos::PerTeam(team), [&] {
      *of_target = from_float<T>(target_gradient);
      losses[n] = statistics.loss(target_logit);
    });
  }
};

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
  Impl::launch_logits<T const>(
      kernel, exec, logits, vocab,
      Impl::CrossEntropyLoss<T>{logits.data(), Impl::extent(logits, 1), targets.data(), losses.data()});
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
  Impl::launch_logits<T>(kernel, exec, logits, vocab,
                         Impl::CrossEntropyBackward<T>{logits.data(), columns, targets.data(), losses.data(), scale});
}

namespace Impl {

struct LargestLogits {
  float* maxima;
  Write mode; ///< add: the larger one of what is there

  template <class Logits>
  KOKKOS_FUNCTION void operator()(Team const& team, Logits const& row, Index n) const {
    float const maximum = row.maximum();
    Kokkos::single(Kokkos::PerTeam(team),
                   [&] { maxima[n] = mode == Write::add && maxima[n] > maximum ? maxima[n] : maximum; });
  }
};

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
  Impl::launch_logits<T const>(kernel, exec, logits, valid, Impl::LargestLogits{maxima.data(), mode});
}

namespace Impl {

template <class T, bool keeps>
struct CrossEntropySums {
  T const* logits;
  Index columns, first, valid;
  std::int32_t const* targets;
  float const* maxima;
  double* sums; ///< two of a row

  template <class Logits>
  KOKKOS_FUNCTION void operator()(Team const& team, Logits const& row, Index n) const {
    Index const target = targets[n] - first;
    bool const is_here = 0 <= target && target < valid;
    double const target_logit = is_here ? static_cast<double>(to_float(logits[n * columns + target])) : 0.0;
    team.team_barrier();
    double const sum = row.template sum_of_powers<keeps>(maxima[n]);
    Kokkos::single(Kokkos::PerTeam(team), [&] {
      sums[2 * n] = sum;
      sums[2 * n + 1] = target_logit;
    });
  }
};

template <class T>
struct CrossEntropyGradient {
  T* logits;
  Index columns, first, valid;
  std::int32_t const* targets;
  float const* maxima;
  double const* sums; ///< two of a row
  float scale;

  template <class Logits>
  KOKKOS_FUNCTION void operator()(Team const& team, Logits const& row, Index n) const {
    Index const target = targets[n] - first;
    float const maximum = maxima[n], factor = static_cast<float>(scale / sums[2 * n]);
    row.become_weights(maximum, factor);
    team.team_barrier();
    if (target < 0 || target >= valid) return;
    float const target_logit = static_cast<float>(sums[2 * n + 1]);
    Kokkos::single(Kokkos::PerTeam(team), [&] {
      logits[n * columns + target] = from_float<T>(exponential_of<T>(target_logit - maximum) * factor - scale);
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
  auto const launch = [&]<bool keeps>(std::bool_constant<keeps>) {
    Impl::launch_logits<T>(kernel, exec, logits, valid,
                           Impl::CrossEntropySums<T, keeps>{logits.data(), Impl::extent(logits, 1), first, valid,
                                                            targets.data(), maxima.data(), sums.data()});
  };
  if (use == LogitsUse::become_gradient)
    launch(std::true_type());
  else
    launch(std::false_type());
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
  Impl::launch_logits<T>(kernel, exec, logits, valid,
                         Impl::CrossEntropyGradient<T>{logits.data(), columns, first, valid, targets.data(),
                                                       maxima.data(), sums.data(), scale});
}

} // namespace trainstone
