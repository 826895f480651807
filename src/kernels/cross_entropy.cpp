#include "kernels/cross_entropy_impl.hpp"

#include "kernels/common/instantiate.hpp"

namespace trainstone {

namespace {
using Elements = Kokkos::RangePolicy<ExecutionSpace, Kokkos::IndexType<Index>>;
} // namespace

void cross_entropy_losses(ExecutionSpace const& exec, Vector<float const> maxima, Matrix<double const> sums,
                          Vector<float> losses) {
  Index const rows = Impl::extent(losses, 0);
  Impl::require_shape("cross_entropy_losses: maxima", maxima, {rows});
  Impl::require_shape("cross_entropy_losses: sums", sums, {rows, 2});
  Kernel const kernel{.label = "trainstone::cross_entropy::losses",
                      .flops = 3 * losses.size(),
                      .bytes = losses.size() * (2 * sizeof(float) + 2 * sizeof(double))};
  launch_for(
      kernel, Elements(exec, 0, rows), KOKKOS_LAMBDA(Index n) {
        Impl::SoftmaxStatistics const statistics{maxima(n), sums(n, 0)};
        losses(n) = statistics.loss(static_cast<float>(sums(n, 1)));
      });
}

#define TRAINSTONE_INSTANTIATE(T)                                                                                      \
  template void cross_entropy_forward<T>(ExecutionSpace const&, Matrix<T const>, Vector<std::int32_t const>, Index,    \
                                         Vector<float>);                                                               \
  template void cross_entropy_backward_fused<T>(ExecutionSpace const&, Matrix<T>, Vector<std::int32_t const>, Index,   \
                                                float, Vector<float>);                                                 \
  template void cross_entropy_maximum<T>(ExecutionSpace const&, Matrix<T const>, Index, Write, Vector<float>);         \
  template void cross_entropy_sums<T>(ExecutionSpace const&, Matrix<T>, Vector<std::int32_t const>, Index, Index,      \
                                      Vector<float const>, LogitsUse, Matrix<double>);                                 \
  template void cross_entropy_gradient<T>(ExecutionSpace const&, Matrix<T>, Vector<std::int32_t const>, Index, Index,  \
                                          Vector<float const>, Matrix<double const>, float);
TRAINSTONE_FOR_EACH_STORAGE(TRAINSTONE_INSTANTIATE)

} // namespace trainstone
