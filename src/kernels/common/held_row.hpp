#pragma once

// Kernels whose body works on one row: launch_rows() starts body(row, n) for every row n. On hosts, and where rows are
// no multiple of 16 bytes, the row is a CachedRow, whose team goes over memory for every use. On devices it is a
// HeldRow: lanes read 16 bytes at a time, once, and hold them in registers. Bodies are the same for both: row.hold(x)
// is a row of values, row.sum(value), row.write(y, value) call value(c) for every place c of the row. Included by files
// of kernels' bodies only.

#include "core/launch.hpp"
#include "kernels/common/chunk.hpp"

#include <algorithm>

namespace trainstone::Impl {

/// Of a chunk of the row that a lane holds.
struct HeldPlace {
  int chunk, element;
};

/// Places are columns.
class CachedRow {
public:
  template <class T>
  struct Values {
    T const* data;
    KOKKOS_FORCEINLINE_FUNCTION float operator()(Index c) const { return to_float(data[c]); }
  };

  KOKKOS_FUNCTION CachedRow(Team const& team, Index columns) : m_team(team), m_columns(columns) {}

  template <class T>
  KOKKOS_FORCEINLINE_FUNCTION Values<T> hold(T const* x) const {
    return {x};
  }
  template <class Value>
  KOKKOS_FORCEINLINE_FUNCTION double sum(Value const& value) const {
    return row_sum(m_team, m_columns, value);
  }
  /// y = or += value, and what y is then.
  template <class T, class Value>
  KOKKOS_FORCEINLINE_FUNCTION Values<T> write(T* y, Write mode, Value const& value) const {
    row_for(m_team, m_columns, [&](Index c) { Impl::write(y[c], value(c), mode); });
    m_team.team_barrier();
    return {y};
  }
  template <class Body>
  KOKKOS_FORCEINLINE_FUNCTION void once(Body const& body) const {
    Kokkos::single(Kokkos::PerTeam(m_team), body);
  }

private:
  Team const& m_team;
  Index m_columns;
};

/// The lanes of one thread of a team.
struct ByThread {
  static constexpr int count = 32;
  static KOKKOS_FORCEINLINE_FUNCTION auto range(Team const& team) {
    return Kokkos::ThreadVectorRange(team, int{count});
  }
  static KOKKOS_FORCEINLINE_FUNCTION auto one(Team const& team) { return Kokkos::PerThread(team); }
};

/// All lanes of a team that has so many.
template <int lanes>
struct ByTeam {
  static constexpr int count = lanes;
  static KOKKOS_FORCEINLINE_FUNCTION auto range(Team const& team) { return Kokkos::TeamVectorRange(team, int{count}); }
  static KOKKOS_FORCEINLINE_FUNCTION auto one(Team const& team) { return Kokkos::PerTeam(team); }
};

/// The lanes that hold a row together. \tparam Which  ByThread or ByTeam
template <class Which>
class TeamLanes {
public:
  static constexpr int count = Which::count;

  KOKKOS_FUNCTION explicit TeamLanes(Team const& team) : m_team(team) {
    Kokkos::parallel_for(Which::range(team), [&](int lane) { m_own = lane; });
  }
  /// Of this lane: lanes are threads of the device.
  KOKKOS_FUNCTION int own() const { return m_own; }
  KOKKOS_FUNCTION double sum(float part) const {
    double total = 0;
    Kokkos::parallel_reduce(Which::range(m_team), [&](int, double& all) { all += static_cast<double>(part); }, total);
    return total;
  }
  KOKKOS_FUNCTION float maximum(float own) const {
    float most = own;
    Kokkos::parallel_reduce(
        Which::range(m_team), [&](int, float& all) { all = own > all ? own : all; }, Kokkos::Max<float>(most));
    return most;
  }
  template <class Body>
  KOKKOS_FUNCTION void once(Body const& body) const {
    Kokkos::single(Which::one(m_team), body);
  }

private:
  Team const& m_team;
  int m_own = 0;
};
using LanesOfThread = TeamLanes<ByThread>;
template <int lanes>
using LanesOfTeam = TeamLanes<ByTeam<lanes>>;

/// A row of T: lane l holds the chunks l, l + lanes, ...: at most `chunks` of them.
template <class T, int chunks, class Lanes>
class HeldRow {
public:
  static constexpr int size = Chunk<T>::size;

  struct Values {
    Chunk<T> held[chunks];
    KOKKOS_FORCEINLINE_FUNCTION float operator()(HeldPlace c) const { return held[c.chunk][c.element]; }
  };

  KOKKOS_FUNCTION HeldRow(Lanes const& lanes, Index columns)
      : m_lanes(lanes), m_chunks(static_cast<int>(columns) / size) {}

  KOKKOS_FORCEINLINE_FUNCTION Values hold(T const* x) const {
    Values values{};
    auto const* const from = reinterpret_cast<Chunk<T> const*>(x);
    for_chunks([&](int chunk, int place) { values.held[chunk] = from[place]; });
    return values;
  }
  /// The terms of a lane in fp32, the sums of lanes in fp64, in an order that depends on the number of columns only.
  template <class Value>
  KOKKOS_FORCEINLINE_FUNCTION double sum(Value const& value) const {
    float part = 0;
    for_chunks([&](int chunk, int) {
      TRAINSTONE_ALL_AT_ONCE
      for (int element = 0; element < size; ++element) part += value(HeldPlace{chunk, element});
    });
    return m_lanes.sum(part);
  }
  template <class Value>
  KOKKOS_FORCEINLINE_FUNCTION Values write(T* y, Write mode, Value const& value) const {
    Values written{};
    if (mode == Write::add) written = hold(y);
    auto* const to = reinterpret_cast<Chunk<T>*>(y);
    for_chunks([&](int chunk, int place) {
      written.held[chunk] = Chunk<T>::of([&](int element) {
        float const own = value(HeldPlace{chunk, element});
        return mode == Write::add ? written.held[chunk][element] + own : own;
      });
      to[place] = written.held[chunk];
    });
    return written;
  }
  template <class Body>
  KOKKOS_FORCEINLINE_FUNCTION void once(Body const& body) const {
    m_lanes.once(body);
  }

private:
  /// body(number among this lane's, number in the row). Unrolled: places are known to the compiler, values in
  /// registers.
  template <class Body>
  KOKKOS_FORCEINLINE_FUNCTION void for_chunks(Body const& body) const {
    TRAINSTONE_ALL_AT_ONCE
    for (int chunk = 0; chunk < chunks; ++chunk) {
      int const place = chunk * Lanes::count + m_lanes.own();
      if (place < m_chunks) body(chunk, place);
    }
  }
  Lanes const& m_lanes;
  int m_chunks; ///< of the row
};

/// sum = x + (branch + bias), the residual connection of one row, which is then held. `bias` may be null, `sum` may be
/// x.
template <class Row, class T>
KOKKOS_FORCEINLINE_FUNCTION auto add_branch(Row const& row, T const* x, T const* branch, T const* bias, T* sum) {
  auto const in = row.hold(x), more = row.hold(branch);
  if (!bias) return row.write(sum, Write::overwrite, [&](auto c) { return in(c) + more(c); });
  auto const shift = row.hold(bias);
  return row.write(sum, Write::overwrite, [&](auto c) { return in(c) + (more(c) + shift(c)); });
}

/// Registers of a lane: so few that the loads of enough rows are on their way, so many that nothing is spilled.
constexpr int held_row_registers(int chunks) { return chunks <= 2 ? 64 : chunks <= 3 ? 80 : chunks <= 4 ? 96 : 160; }

template <int chunks, int lanes>
using HeldRowPolicy =
    Kokkos::TeamPolicy<ExecutionSpace,
                       Kokkos::LaunchBounds<lanes, std::max(1, 65536 / (lanes * held_row_registers(chunks)))>>;

/// A thread of a team to a row.
template <class T, int chunks, class Body>
void launch_rows_of_threads(Kernel const& kernel, ExecutionSpace const& exec, Index rows, Index columns,
                            Body const& body) {
  constexpr int together = 4;
  HeldRowPolicy<chunks, together * LanesOfThread::count> const policy(exec, static_cast<int>(divide_up(rows, together)),
                                                                      together, LanesOfThread::count);
  launch_for(
      kernel, policy, KOKKOS_LAMBDA(Team const& team) {
        Index const n = team.league_rank() * Index{together} + team.team_rank();
        if (n < rows) body(HeldRow<T, chunks, LanesOfThread>(LanesOfThread(team), columns), n);
      });
}

/// A team to a row.
template <class T, int chunks, int lanes, class Body>
void launch_rows_of_teams(Kernel const& kernel, ExecutionSpace const& exec, Index rows, Index columns,
                          Body const& body) {
  HeldRowPolicy<chunks, lanes> const policy(exec, static_cast<int>(rows), lanes / 32, 32);
  launch_for(
      kernel, policy, KOKKOS_LAMBDA(Team const& team) {
        using Lanes = LanesOfTeam<lanes>;
        body(HeldRow<T, chunks, Lanes>(Lanes(team), columns), Index{team.league_rank()});
      });
}

/// body(row, n) for every row of matrices of T. `in_chunks`: lie_in_chunks() of all of them, vectors along a row
/// included. The body must not write what another row reads.
template <class T, class Body>
void launch_rows(Kernel const& kernel, ExecutionSpace const& exec, Index rows, Index columns, bool in_chunks,
                 Body const& body) {
  if constexpr (!host_reaches_memory) {
    Index const chunks = columns / Chunk<T>::size;
    if (in_chunks && rows > 0) {
      if (chunks <= 2 * 32) return launch_rows_of_threads<T, 2>(kernel, exec, rows, columns, body);
      if (chunks <= 3 * 32) return launch_rows_of_threads<T, 3>(kernel, exec, rows, columns, body);
      if (chunks <= 4 * 32) return launch_rows_of_threads<T, 4>(kernel, exec, rows, columns, body);
      if (chunks <= 7 * 32) return launch_rows_of_threads<T, 7>(kernel, exec, rows, columns, body);
      if (chunks <= 4 * 128) return launch_rows_of_teams<T, 4, 128>(kernel, exec, rows, columns, body);
      if (chunks <= 4 * 512) return launch_rows_of_teams<T, 4, 512>(kernel, exec, rows, columns, body);
    }
  }
  launch_for(
      kernel, row_policy(exec, rows),
      KOKKOS_LAMBDA(Team const& team) { body(CachedRow(team, columns), Index{team.league_rank()}); });
}

} // namespace trainstone::Impl
