#include "kernels/initialize_impl.hpp"

#include "kernels/common/instantiate.hpp"
#include "kernels/common/shapes.hpp"

namespace trainstone {

#define TRAINSTONE_INSTANTIATE(T)                                                                                      \
  template void normal_fill<T>(ExecutionSpace const&, std::uint64_t, Index, double, Vector<T>);
TRAINSTONE_FOR_EACH_STORAGE(TRAINSTONE_INSTANTIATE)

void sum_of_changes(ExecutionSpace const& exec, InitialElements const& initial, Vector<float const> x,
                    Vector<double> result) {
  Impl::require_shape("sum_of_changes: result", result, {1});
  Kernel const kernel{
      .label = "trainstone::initialize::changes", .flops = 13 * x.size(), .bytes = x.size() * sizeof(float) + 8};
  using Blocks = Kokkos::RangePolicy<ExecutionSpace, Kokkos::IndexType<Index>>;
  using Sum = Kokkos::View<double, MemorySpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
  Index const count = Impl::extent(x, 0), first = initial.first_counter;
  bool const is_random = initial.stddev != 0;
  launch_reduce(
      kernel, Blocks(exec, first / 4, (first + count + 3) / 4),
      KOKKOS_LAMBDA(Index block, double& sum) {
        NormalBlock const normals =
            is_random ? normal_block(initial.seed, RandomStream::initial_values, static_cast<std::uint64_t>(block))
                      : NormalBlock{};
        for (Index j = 0; j < 4; ++j) {
          Index const i = 4 * block + j - first;
          if (i < 0 || i >= count) continue;
          float const begun = is_random ? static_cast<float>(initial.stddev * normals.values[j]) : initial.constant;
          sum += Kokkos::abs(static_cast<double>(x(i)) - static_cast<double>(begun));
        }
      },
      Sum(result.data()));
}

} // namespace trainstone
