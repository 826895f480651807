#include "kernels/accumulate.hpp"

#include "core/launch.hpp"
#include "kernels/common/row.hpp"
#include "kernels/common/shapes.hpp"

namespace trainstone {

namespace Impl {

template <class T>
void accumulate(ExecutionSpace const& exec, Write write, Vector<T const> from, Vector<T> to) {
  Index const count = extent(from, 0);
  require_shape("accumulate: to", to, {count});
  bool const adds = write == Write::add;
  Kernel const kernel{.label = "trainstone::accumulate",
                      .flops = adds ? from.size() : 0,
                      .bytes = from.size() * sizeof(T) * (adds ? 3 : 2)};
  launch_for(
      kernel, row_policy(exec, divide_up(count, chunk_size)), KOKKOS_LAMBDA(Team const& team) {
        Index const first = team.league_rank() * chunk_size;
        T const* const source = from.data() + first;
        T* const target = to.data() + first;
        row_for(team, minimum(chunk_size, count - first), [&](Index i) {
          target[i] = adds ? from_float<T>(to_float(target[i]) + to_float(source[i])) : source[i];
        });
      });
}

} // namespace Impl

template <class T>
void add_parts(ExecutionSpace const& exec, Matrix<T> parts) {
  Index const count = Impl::extent(parts, 0), size = Impl::extent(parts, 1);
  TRAINSTONE_REQUIRE(count <= 1 << 16, "add_parts: {} parts", count);
  Kernel const kernel{
      .label = "trainstone::accumulate::parts", .flops = parts.size(), .bytes = parts.size() * sizeof(T)};
  launch_for(
      kernel, Kokkos::RangePolicy<ExecutionSpace, Kokkos::IndexType<Index>>(exec, 0, size),
      KOKKOS_LAMBDA(Index i) { parts(0, i) = Impl::tree_over(count, [&](Index part) { return parts(part, i); }); });
}

template void add_parts<float>(ExecutionSpace const&, Matrix<float>);
template void add_parts<double>(ExecutionSpace const&, Matrix<double>);

void accumulate(ExecutionSpace const& exec, Write write, ConstStoredVector from, StoredVector to) {
  with_storage(to.storage, [&]<class T>() { Impl::accumulate<T>(exec, write, from.as<T>(), to.as<T>()); });
}

} // namespace trainstone
