#pragma once

// Body of cast.hpp; included by cast.cpp alone.

#include "kernels/cast.hpp"

#include "core/launch.hpp"
#include "kernels/common/row.hpp"
#include "kernels/common/shapes.hpp"

namespace trainstone {

template <class From, class To>
void cast(ExecutionSpace const& exec, Vector<From const> from, Vector<To> to) {
  Index const count = Impl::extent(from, 0);
  Impl::require_shape("cast: to", to, {count});
  Kernel const kernel{.label = "trainstone::cast::convert", .bytes = from.size() * (sizeof(From) + sizeof(To))};
  launch_for(
      kernel, Impl::row_policy(exec, Impl::divide_up(count, Impl::chunk_size)), KOKKOS_LAMBDA(Impl::Team const& team) {
        Index const first = team.league_rank() * Impl::chunk_size;
        From const* const source = from.data() + first;
        To* const target = to.data() + first;
        Impl::row_for(team, Impl::minimum(Impl::chunk_size, count - first),
                      [&](Index i) { target[i] = from_float<To>(to_float(source[i])); });
      });
}

namespace Impl {

template <class T>
void round_to(ExecutionSpace const& exec, Vector<float> values) {
  Index const count = extent(values, 0);
  Kernel const kernel{.label = "trainstone::cast::round", .bytes = values.size() * 2 * sizeof(float)};
  launch_for(
      kernel, row_policy(exec, divide_up(count, chunk_size)), KOKKOS_LAMBDA(Team const& team) {
        Index const first = team.league_rank() * chunk_size;
        float* const target = values.data() + first;
        row_for(team, minimum(chunk_size, count - first),
                [&](Index i) { target[i] = to_float(from_float<T>(target[i])); });
      });
}

} // namespace Impl

} // namespace trainstone
