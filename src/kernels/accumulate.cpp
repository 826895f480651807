#include "kernels/accumulate.hpp"

#include "kernels/common/flat.hpp"
#include "kernels/common/shapes.hpp"

namespace trainstone {

namespace Impl {

template <class T, bool adds>
struct Accumulation {
  static constexpr int packet = packet_of<T>;
  T const* from;
  T* to;

  bool is_aligned() const { return aligned_for(packet, from, to); }

  template <int n>
  KOKKOS_INLINE_FUNCTION void operator()(Index i, Width<n>) const {
    if constexpr (adds) {
      Packet<float, n> const terms = load_floats<n>(from + i);
      Packet<float, n> sums = load_floats<n>(to + i);
      for (int j = 0; j < n; ++j) sums[j] += terms[j];
      store_floats<n>(to + i, sums);
    } else {
      store_packet<n>(to + i, load_packet<n>(from + i));
    }
  }
};

template <class T>
void accumulate(ExecutionSpace const& exec, Write write, Vector<T const> from, Vector<T> to) {
  Index const count = extent(from, 0);
  require_shape("accumulate: to", to, {count});
  bool const adds = write == Write::add;
  Kernel const kernel{.label = "trainstone::accumulate",
                      .flops = adds ? from.size() : 0,
                      .bytes = from.size() * sizeof(T) * (adds ? 3 : 2)};
  if (adds)
    launch_flat(kernel, exec, count, Accumulation<T, true>{from.data(), to.data()});
  else
    launch_flat(kernel, exec, count, Accumulation<T, false>{from.data(), to.data()});
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
