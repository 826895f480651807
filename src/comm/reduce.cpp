#include "comm/reduce.hpp"

#include "core/error.hpp"
#include "core/launch.hpp"

#include <type_traits>

namespace trainstone {

namespace {

using Elements = Kokkos::RangePolicy<ExecutionSpace, Kokkos::IndexType<Index>>;

struct Sum {
  template <class T>
  KOKKOS_FUNCTION T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) { // wraps around where the signed sum would be undefined
      using Unsigned = std::make_unsigned_t<T>;
      return static_cast<T>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b));
    } else {
      return a + b;
    }
  }
};

struct Max {
  template <class T>
  KOKKOS_FUNCTION T operator()(T a, T b) const {
    return b > a || b != b ? b : a;
  }
};

struct Min {
  template <class T>
  KOKKOS_FUNCTION T operator()(T a, T b) const {
    return b < a || b != b ? b : a;
  }
};

template <class T, class Combine>
struct ReduceElements {
  T const* from;
  T* to;
  Combine combine;
  KOKKOS_FUNCTION void operator()(Index i) const { to[i] = combine(to[i], from[i]); }
};

template <class T>
struct CopyElements {
  T const* from;
  T* to;
  KOKKOS_FUNCTION void operator()(Index i) const { to[i] = from[i]; }
};

template <class T, class Combine>
void launch_reduction(ExecutionSpace const& exec, Vector<T const> from, Vector<T> to, Combine combine) {
  auto const n = static_cast<std::uint64_t>(to.extent(0));
  Kernel const kernel{"trainstone::comm::reduce", Phase::communication, n, 3 * n * sizeof(T)};
  launch_for(kernel, Elements(exec, 0, static_cast<Index>(n)),
             ReduceElements<T, Combine>{from.data(), to.data(), combine});
}

void require_equal_extents(std::size_t from, std::size_t to) {
  TRAINSTONE_REQUIRE(from == to, "source has {} elements, target {}", from, to);
}

} // namespace

template <class T>
void reduce(ExecutionSpace const& exec, Operation operation, Vector<T const> from, Vector<T> to) {
  require_equal_extents(from.extent(0), to.extent(0));
  switch (operation) {
  case Operation::sum: return launch_reduction(exec, from, to, Sum{});
  case Operation::max: return launch_reduction(exec, from, to, Max{});
  case Operation::min: return launch_reduction(exec, from, to, Min{});
  }
}

template <class T>
void copy(ExecutionSpace const& exec, Vector<T const> from, Vector<T> to) {
  require_equal_extents(from.extent(0), to.extent(0));
  auto const n = static_cast<std::uint64_t>(to.extent(0));
  Kernel const kernel{"trainstone::comm::copy", Phase::communication, 0, 2 * n * sizeof(T)};
  launch_for(kernel, Elements(exec, 0, static_cast<Index>(n)), CopyElements<T>{from.data(), to.data()});
}

template void reduce(ExecutionSpace const&, Operation, Vector<float const>, Vector<float>);
template void reduce(ExecutionSpace const&, Operation, Vector<double const>, Vector<double>);
template void reduce(ExecutionSpace const&, Operation, Vector<std::int32_t const>, Vector<std::int32_t>);
template void reduce(ExecutionSpace const&, Operation, Vector<std::int64_t const>, Vector<std::int64_t>);
template void copy(ExecutionSpace const&, Vector<float const>, Vector<float>);
template void copy(ExecutionSpace const&, Vector<double const>, Vector<double>);
template void copy(ExecutionSpace const&, Vector<std::int32_t const>, Vector<std::int32_t>);
template void copy(ExecutionSpace const&, Vector<std::int64_t const>, Vector<std::int64_t>);

} // namespace trainstone
