#pragma once

// Bodies of positions.hpp; included by positions.cpp alone.

#include "kernels/positions.hpp"

#include "core/launch.hpp"
#include "kernels/common/row.hpp"
#include "kernels/common/shapes.hpp"

namespace trainstone {

namespace Impl {

/// Where a rank's rows lie among all rows. Plain numbers: kernels hold it by value.
struct OwnPositions {
  Index sequence, length, first;

  OwnPositions(char const* where, Index all_rows, Index own_rows, Index samples, Index first_position)
      : sequence(samples > 0 ? all_rows / samples : 0),
        length(samples > 0 ? own_rows / samples : 0),
        first(first_position) {
    bool const is_whole = samples > 0 && sequence * samples == all_rows && length * samples == own_rows;
    TRAINSTONE_REQUIRE(is_whole && first >= 0 && first + length <= sequence,
                       "{}: {} rows from position {} on are not among {} rows of {} samples", where, own_rows, first,
                       all_rows, samples);
  }

  KOKKOS_INLINE_FUNCTION Index among_all(Index own) const { return own / length * sequence + first + own % length; }
};

} // namespace Impl

template <class From, class T>
void take_positions(ExecutionSpace const& exec, Matrix<From const> all, Index samples, Index first, Matrix<T> own) {
  Index const rows = Impl::extent(own, 0), columns = Impl::extent(own, 1);
  Impl::require_shape("take_positions: all", all, {Impl::extent(all, 0), columns});
  Impl::OwnPositions const positions("take_positions", Impl::extent(all, 0), rows, samples, first);
  Kernel const kernel{.label = "trainstone::positions::take", .bytes = own.size() * (sizeof(From) + sizeof(T))};
  launch_for(
      kernel, Impl::row_policy(exec, rows), KOKKOS_LAMBDA(Impl::Team const& team) {
        Index const n = team.league_rank();
        From const* const source = Impl::row_of(all, positions.among_all(n));
        T* const target = Impl::row_of(own, n);
        Impl::row_for(team, columns, [&](Index c) { target[c] = from_float<T>(to_float(source[c])); });
      });
}

template <class T>
void place_positions(ExecutionSpace const& exec, Matrix<T const> own, Index samples, Index first, Matrix<T> all) {
  Index const rows = Impl::extent(own, 0), columns = Impl::extent(own, 1);
  Impl::require_shape("place_positions: all", all, {Impl::extent(all, 0), columns});
  Impl::OwnPositions const positions("place_positions", Impl::extent(all, 0), rows, samples, first);
  Kernel const kernel{.label = "trainstone::positions::place", .bytes = 2 * own.size() * sizeof(T)};
  launch_for(
      kernel, Impl::row_policy(exec, rows), KOKKOS_LAMBDA(Impl::Team const& team) {
        Index const n = team.league_rank();
        T const* const source = Impl::row_of(own, n);
        T* const target = Impl::row_of(all, positions.among_all(n));
        Impl::row_for(team, columns, [&](Index c) { target[c] = source[c]; });
      });
}

} // namespace trainstone
