#pragma once

// Body of cast.hpp; included by cast.cpp alone.

#include "kernels/cast.hpp"

#include "kernels/common/flat.hpp"
#include "kernels/common/shapes.hpp"

namespace trainstone {

namespace Impl {

template <class From, class To>
struct Conversion {
  static constexpr int packet = packet_of<From, To>;
  From const* from;
  To* to;

  bool is_aligned() const { return aligned_for(packet, from, to); }

  template <int n>
  KOKKOS_INLINE_FUNCTION void operator()(Index i, Width<n>) const {
    store_floats<n>(to + i, load_floats<n>(from + i));
  }
};

/// As T would keep them.
template <class T>
struct Rounding {
  static constexpr int packet = packet_of<float>;
  float* values;

  bool is_aligned() const { return aligned_for(packet, values); }

  template <int n>
  KOKKOS_INLINE_FUNCTION void operator()(Index i, Width<n>) const {
    Packet<float, n> kept = load_floats<n>(values + i);
    for (int j = 0; j < n; ++j) kept[j] = to_float(from_float<T>(kept[j]));
    store_floats<n>(values + i, kept);
  }
};

template <class T>
void round_to(ExecutionSpace const& exec, Vector<float> values) {
  Kernel const kernel{.label = "trainstone::cast::round", .bytes = values.size() * 2 * sizeof(float)};
  launch_flat(kernel, exec, extent(values, 0), Rounding<T>{values.data()});
}

} // namespace Impl

template <class From, class To>
void cast(ExecutionSpace const& exec, Vector<From const> from, Vector<To> to) {
  Index const count = Impl::extent(from, 0);
  Impl::require_shape("cast: to", to, {count});
  Kernel const kernel{.label = "trainstone::cast::convert", .bytes = from.size() * (sizeof(From) + sizeof(To))};
  Impl::launch_flat(kernel, exec, count, Impl::Conversion<From, To>{from.data(), to.data()});
}

} // namespace trainstone
