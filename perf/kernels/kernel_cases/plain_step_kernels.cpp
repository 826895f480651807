// The plain kernels of the loss, of the optimizers, and those over whole vectors.

#include "kernel_cases/plain_kernels.hpp"

#include "core/types.hpp"
#include "kernels/common/instantiate.hpp"

#include <cmath>
#include <type_traits>

namespace trainstone::plain {

namespace {

auto over(ExecutionSpace const& exec, std::size_t count) {
  return Kokkos::RangePolicy<ExecutionSpace, Kokkos::IndexType<Index>>(exec, 0, static_cast<Index>(count));
}

/// log of the sum of exponentials of row n.
template <class Logits>
KOKKOS_INLINE_FUNCTION float log_sum_exp(Logits const& logits, Index n, Index vocab) {
  float largest = to_float(logits(n, 0)), sum = 0;
  for (Index v = 1; v < vocab; ++v) largest = Kokkos::fmax(largest, to_float(logits(n, v)));
  for (Index v = 0; v < vocab; ++v) sum += Kokkos::exp(to_float(logits(n, v)) - largest);
  return largest + Kokkos::log(sum);
}

/// What the model computes with, unless that is the master copy. Not in the lambdas: nvcc's must not capture a variable
/// in an `if constexpr` first.
template <class T>
KOKKOS_INLINE_FUNCTION void write_rounded(Vector<T> const& parameter, Index i, float value) {
  if constexpr (!std::is_same_v<T, float>) parameter(i) = from_float<T>(value);
}

template <class T, bool decoupled_decay>
void update_by_adam(ExecutionSpace const& exec, Vector<T const> const& gradient, Vector<float> const& master,
                    Vector<float> const& m, Vector<float> const& v, Vector<T> const& parameter, AdamStep const& step) {
  auto const correction = [&](float beta) {
    return static_cast<float>(1 / (1 - std::pow(static_cast<double>(beta), static_cast<double>(step.step))));
  };
  float const m_correction = correction(step.beta1), v_correction = correction(step.beta2);
  Kokkos::parallel_for(
      "trainstone::plain::adam", over(exec, gradient.extent(0)), KOKKOS_LAMBDA(Index i) {
        float const decay = step.weight_decay * master(i);
        float const g = to_float(gradient(i)) * step.gradient_scale + (decoupled_decay ? 0.0F : decay);
        m(i) = step.beta1 * m(i) + (1.0F - step.beta1) * g;
        v(i) = step.beta2 * v(i) + (1.0F - step.beta2) * g * g;
        float const direction = m(i) * m_correction / (Kokkos::sqrt(v(i) * v_correction) + step.epsilon);
        master(i) -= step.learning_rate * (direction + (decoupled_decay ? decay : 0.0F));
        write_rounded(parameter, i, master(i));
      });
}

} // namespace

template <class T>
void cross_entropy_forward(ExecutionSpace const& exec, Matrix<T const> logits, Vector<std::int32_t const> targets,
                           Index vocab, Vector<float> losses) {
  Kokkos::parallel_for(
      "trainstone::plain::cross_entropy_forward", over(exec, logits.extent(0)),
      KOKKOS_LAMBDA(Index n) { losses(n) = log_sum_exp(logits, n, vocab) - to_float(logits(n, targets(n))); });
}

template <class T>
void cross_entropy_backward_fused(ExecutionSpace const& exec, Matrix<T> logits, Vector<std::int32_t const> targets,
                                  Index vocab, float scale, Vector<float> losses) {
  Index const columns = static_cast<Index>(logits.extent(1));
  Kokkos::parallel_for(
      "trainstone::plain::cross_entropy_backward_fused", over(exec, logits.extent(0)), KOKKOS_LAMBDA(Index n) {
        float const of_row = log_sum_exp(logits, n, vocab);
        losses(n) = of_row - to_float(logits(n, targets(n)));
        for (Index c = 0; c < columns; ++c) {
          float const softmax = c < vocab ? Kokkos::exp(to_float(logits(n, c)) - of_row) : 0.0F;
          logits(n, c) = from_float<T>((softmax - (c == targets(n) ? 1.0F : 0.0F)) * scale);
        }
      });
}

template <class T>
void adamw_update(ExecutionSpace const& exec, Vector<T const> gradient, Vector<float> master, Vector<float> m,
                  Vector<float> v, Vector<T> parameter, AdamStep const& step) {
  update_by_adam<T, true>(exec, gradient, master, m, v, parameter, step);
}

template <class T>
void adam_update(ExecutionSpace const& exec, Vector<T const> gradient, Vector<float> master, Vector<float> m,
                 Vector<float> v, Vector<T> parameter, AdamStep const& step) {
  update_by_adam<T, false>(exec, gradient, master, m, v, parameter, step);
}

template <class T>
void sgd_update(ExecutionSpace const& exec, Vector<T const> gradient, Vector<float> master, Vector<float> velocity,
                Vector<T> parameter, SgdStep const& step) {
  Kokkos::parallel_for(
      "trainstone::plain::sgd", over(exec, gradient.extent(0)), KOKKOS_LAMBDA(Index i) {
        float const g = to_float(gradient(i)) * step.gradient_scale + step.weight_decay * master(i);
        velocity(i) = step.momentum * velocity(i) + g;
        master(i) -= step.learning_rate * velocity(i);
        write_rounded(parameter, i, master(i));
      });
}

template <class T>
void squared_norm(ExecutionSpace const& exec, Vector<T const> x, Vector<double> result) {
  Kokkos::parallel_reduce(
      "trainstone::plain::squared_norm", over(exec, x.extent(0)),
      KOKKOS_LAMBDA(Index i, double& total) {
        double const value = static_cast<double>(to_float(x(i)));
        total += value * value;
      },
      Kokkos::View<double, MemorySpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>(result.data()));
}

void sum(ExecutionSpace const& exec, Vector<float const> x, Vector<double> result) {
  Kokkos::parallel_reduce(
      "trainstone::plain::sum", over(exec, x.extent(0)),
      KOKKOS_LAMBDA(Index i, double& total) { total += static_cast<double>(x(i)); },
      Kokkos::View<double, MemorySpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>(result.data()));
}

template <class From, class To>
void cast(ExecutionSpace const& exec, Vector<From const> from, Vector<To> to) {
  Kokkos::parallel_for(
      "trainstone::plain::cast", over(exec, from.extent(0)),
      KOKKOS_LAMBDA(Index i) { to(i) = from_float<To>(to_float(from(i))); });
}

template <class T>
void round_to(ExecutionSpace const& exec, Vector<float> values) {
  Kokkos::parallel_for(
      "trainstone::plain::round_to", over(exec, values.extent(0)),
      KOKKOS_LAMBDA(Index i) { values(i) = to_float(from_float<T>(values(i))); });
}

template <class T>
void accumulate(ExecutionSpace const& exec, Vector<T const> from, Vector<T> to) {
  Kokkos::parallel_for(
      "trainstone::plain::accumulate", over(exec, from.extent(0)),
      KOKKOS_LAMBDA(Index i) { to(i) = from_float<T>(to_float(to(i)) + to_float(from(i))); });
}

#define TRAINSTONE_INSTANTIATE(T)                                                                                      \
  template void cross_entropy_forward<T>(ExecutionSpace const&, Matrix<T const>, Vector<std::int32_t const>, Index,    \
                                         Vector<float>);                                                               \
  template void cross_entropy_backward_fused<T>(ExecutionSpace const&, Matrix<T>, Vector<std::int32_t const>, Index,   \
                                                float, Vector<float>);                                                 \
  template void adamw_update<T>(ExecutionSpace const&, Vector<T const>, Vector<float>, Vector<float>, Vector<float>,   \
                                Vector<T>, AdamStep const&);                                                           \
  template void adam_update<T>(ExecutionSpace const&, Vector<T const>, Vector<float>, Vector<float>, Vector<float>,    \
                               Vector<T>, AdamStep const&);                                                            \
  template void sgd_update<T>(ExecutionSpace const&, Vector<T const>, Vector<float>, Vector<float>, Vector<T>,         \
                              SgdStep const&);                                                                         \
  template void squared_norm<T>(ExecutionSpace const&, Vector<T const>, Vector<double>);                               \
  template void cast<T, float>(ExecutionSpace const&, Vector<T const>, Vector<float>);                                 \
  template void cast<T, bf16>(ExecutionSpace const&, Vector<T const>, Vector<bf16>);                                   \
  template void cast<T, fp16>(ExecutionSpace const&, Vector<T const>, Vector<fp16>);                                   \
  template void round_to<T>(ExecutionSpace const&, Vector<float>);                                                     \
  template void accumulate<T>(ExecutionSpace const&, Vector<T const>, Vector<T>);
TRAINSTONE_FOR_EACH_STORAGE(TRAINSTONE_INSTANTIATE)

} // namespace trainstone::plain
