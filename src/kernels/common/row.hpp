#pragma once

// How kernels go over memory. Owns the policies (a team per row, per tile of columns, per chunk of a vector) and the
// loops inside a team: vector code of one thread on the host, TeamVectorRange on a device. Promises: every sum runs in
// an order that depends on its length only, so that its bits depend neither on the run nor on the number of threads.
// Host loops become vector code without -ffast-math because `omp simd` states that iterations are independent and
// which sums may be split into lanes (needs -fopenmp-simd). Included by files of kernels' bodies only.

#include "core/error.hpp"
#include "core/tree_order.hpp"
#include "core/types.hpp"
#include "core/views.hpp"
#include "core/write.hpp"

#include <cstddef>
#include <limits>
#include <type_traits>

/// Before a loop: `count` iterations, which is a number, between two tests of its end, where g++ compiles for the host.
/// Beside multiply-adds every other instruction counts, most of all where another program shares the core: with 4, 133
/// instead of 107 GF/s on average over GPT-2's products (AVX2, two cores). A loop of no more than `count` iterations
/// disappears, so that the one around it becomes vector code.
#if defined(__GNUC__) && !defined(__clang__) && !defined(__CUDACC__)
#define TRAINSTONE_PRAGMA(text) _Pragma(#text)
#define TRAINSTONE_UNROLL(count) TRAINSTONE_PRAGMA(GCC unroll count)
#else
#define TRAINSTONE_UNROLL(count)
#endif

/// Before a loop over registers of a device. Hosts decide themselves.
#if defined(__CUDA_ARCH__)
#define TRAINSTONE_ALL_AT_ONCE _Pragma("unroll")
#else
#define TRAINSTONE_ALL_AT_ONCE
#endif

namespace trainstone::Impl {

using RowPolicy = Kokkos::TeamPolicy<ExecutionSpace>;
using Team = RowPolicy::member_type;

/// Elements per team in kernels over flat vectors: the start of a team (about 50 ns) vanishes.
inline constexpr Index chunk_size = 8192;
/// Columns whose partial sums are kept at once: they stay in the first-level cache.
inline constexpr Index column_tile = 256;
/// Terms that are added in fp32 before their sum is added to the total.
inline constexpr Index sum_block = 512, column_sum_block = 64;

KOKKOS_INLINE_FUNCTION constexpr Index divide_up(Index count, Index size) { return (count + size - 1) / size; }
KOKKOS_INLINE_FUNCTION constexpr Index minimum(Index a, Index b) { return a < b ? a : b; }

/// A team per row (tile, chunk). On the host a team is one thread.
inline RowPolicy row_policy(ExecutionSpace const& exec, Index rows) {
  TRAINSTONE_REQUIRE(rows <= std::numeric_limits<int>::max(), "{} teams are more than Kokkos can start", rows);
  return {exec, static_cast<int>(rows), Kokkos::AUTO};
}

/// Row n of a matrix. Kernels take pointers out of their loops: through a View g++ does not see consecutive addresses.
template <class MatrixView>
KOKKOS_INLINE_FUNCTION auto* row_of(MatrixView const& matrix, Index n) {
  return matrix.data() + n * static_cast<Index>(matrix.extent(1));
}

/// Asks a host's caches for `count` elements that will be written soon.
KOKKOS_FORCEINLINE_FUNCTION void prefetch_to_write(float const* elements, int count) {
  constexpr int line = 64 / sizeof(float);
  KOKKOS_IF_ON_HOST((for (int i = 0; i < count; i += line) __builtin_prefetch(elements + i, 1);
                     __builtin_prefetch(elements + count - 1, 1);))
  KOKKOS_IF_ON_DEVICE((static_cast<void>(elements); static_cast<void>(count); static_cast<void>(line);))
}

/// target = or += value.
template <class T>
KOKKOS_INLINE_FUNCTION void write(T& target, float value, Write mode) {
  target = from_float<T>(mode == Write::add ? to_float(target) + value : value);
}

// ---- one thread -----------------------------------------------------------------------------------------------------

/// body(i) for i in [0, count), which body takes as count is: of an index that was converted to 32 bits g++ does not
/// see that addresses are consecutive. Iterations must be independent.
template <class Integer, class Body>
KOKKOS_INLINE_FUNCTION void vector_for(Integer count, Body const& body) {
#pragma omp simd
  for (Integer i = 0; i < count; ++i) body(i);
}

/// The sum of value(i) over [begin, end), in the lanes of a vector.
template <class Value>
KOKKOS_INLINE_FUNCTION float vector_sum(Index begin, Index end, Value const& value) {
  float result = 0.0F;
#pragma omp simd reduction(+ : result)
  for (Index i = begin; i < end; ++i) result += value(i);
  return result;
}

/// The maximum of value(i) over [0, count); NaN is passed over.
template <class Value>
KOKKOS_INLINE_FUNCTION float vector_max(Index count, Value const& value) {
  float result = -Kokkos::Experimental::infinity_v<float>;
#pragma omp simd reduction(max : result)
  for (Index i = 0; i < count; ++i) {
    float const candidate = value(i);
    result = candidate > result ? candidate : result;
  }
  return result;
}

/// The sum of value(0) ... value(count - 1) in the balanced binary tree, by one thread. Fewer than 2^depth values.
template <int depth = 17, class Value>
KOKKOS_INLINE_FUNCTION auto tree_over(Index count, Value const& value) {
  using Number = decltype(value(Index{0}));
  Number waiting[depth] = {};
  TreeOrder order(count);
  for (TreeOrder::Step step{}; order.next(step);)
    if (step.adds())
      waiting[step.place - 1] += waiting[step.place];
    else
      waiting[step.place] = value(step.term);
  return waiting[0];
}

// ---- one team -------------------------------------------------------------------------------------------------------

/// body(i) for i in [0, count), one element each. Iterations must be independent.
template <class Body>
KOKKOS_INLINE_FUNCTION void row_for(Team const& team, Index count, Body const& body) {
  KOKKOS_IF_ON_HOST((static_cast<void>(team); vector_for(count, body);))
  KOKKOS_IF_ON_DEVICE((Kokkos::parallel_for(Kokkos::TeamVectorRange(team, count), body);))
}

/// body(i) for i in [0, count), where body itself is vector code on the host.
template <class Body>
KOKKOS_INLINE_FUNCTION void team_for(Team const& team, Index count, Body const& body) {
  KOKKOS_IF_ON_HOST((static_cast<void>(team); for (Index i = 0; i < count; ++i) body(i);))
  KOKKOS_IF_ON_DEVICE((Kokkos::parallel_for(Kokkos::TeamVectorRange(team, count), body);))
}

/// The sum of value(i) over [0, count), known to the whole team: blocks in fp32, their sums in fp64. Calls value once
/// for each i: it may write element i.
template <class Value>
KOKKOS_INLINE_FUNCTION double row_sum(Team const& team, Index count, Value const& value) {
  double total = 0.0;
  KOKKOS_IF_ON_HOST((static_cast<void>(team); for (Index begin = 0; begin < count; begin += sum_block) total +=
                                              vector_sum(begin, minimum(begin + sum_block, count), value);))
  KOKKOS_IF_ON_DEVICE(
      (Kokkos::parallel_reduce(
           Kokkos::TeamVectorRange(team, count), [&](Index i, double& partial) { partial += value(i); }, total);))
  return total;
}

/// The maximum of value(i) over [0, count), known to the whole team, of which all have read; NaN is passed over.
template <class Value>
KOKKOS_INLINE_FUNCTION float row_max(Team const& team, Index count, Value const& value) {
  float result = -Kokkos::Experimental::infinity_v<float>;
  KOKKOS_IF_ON_HOST((static_cast<void>(team); result = vector_max(count, value);))
  KOKKOS_IF_ON_DEVICE((Kokkos::parallel_reduce(
                           Kokkos::TeamVectorRange(team, count),
                           [&](Index i, float& partial) {
                             float const candidate = value(i);
                             partial = candidate > partial ? candidate : partial;
                           },
                           Kokkos::Max<float>(result));))
  return result;
}

/// partial[c] += value(r, c) for rows [begin, end) and columns [0, width): four rows at a time, so that a partial sum
/// is loaded and stored once for four terms. The order of the additions is that of the rows.
template <class Value>
KOKKOS_INLINE_FUNCTION void add_rows(float* partial, Index begin, Index end, Index width, Value const& value) {
  Index r = begin;
  for (; r + 4 <= end; r += 4) {
    vector_for(width, [&](Index c) {
      partial[c] = (((partial[c] + value(r, c)) + value(r + 1, c)) + value(r + 2, c)) + value(r + 3, c);
    });
  }
  for (; r < end; ++r) vector_for(width, [&](Index c) { partial[c] += value(r, c); });
}

/// On the host, for one group: the sums of columns over rows, a tile of columns at a time.
template <class Value, class Store>
void host_column_sums(Index columns, Index rows, Value const& value, Store const& store) {
  for (Index first = 0; first < columns; first += column_tile) {
    Index const width = minimum(column_tile, columns - first);
    float total[column_tile];
    vector_for(width, [&](Index c) { total[c] = 0.0F; });
    for (Index begin = 0; begin < rows; begin += column_sum_block) {
      float partial[column_tile];
      vector_for(width, [&](Index c) { partial[c] = 0.0F; });
      add_rows(partial, begin, minimum(begin + column_sum_block, rows), width,
               [&](Index r, Index c) { return value(r, first + c); });
      vector_for(width, [&](Index c) { total[c] += partial[c]; });
    }
    vector_for(width, [&](Index c) { store(first + c, total[c]); });
  }
}

/// The sum of value(r) over [begin, end), added as host_column_sums adds them.
template <class Value>
KOKKOS_INLINE_FUNCTION float serial_sum(Index begin, Index end, Value const& value) {
  float total = 0.0F;
  for (Index first = begin; first < end; first += column_sum_block) {
    float partial = 0.0F;
    Index const last = minimum(first + column_sum_block, end);
    for (Index r = first; r < last; ++r) partial += value(r);
    total += partial;
  }
  return total;
}

/// store(g, c, sum of value(g, r, c) over r in [0, rows(g))) for every group g and column c: rows are added one after
/// the other in blocks of 64, and the blocks' sums likewise. A team has fewer than 2^31 sums: devices divide 32 bits
/// several times faster than 64.
template <class Rows, class Value, class Store>
KOKKOS_INLINE_FUNCTION void column_sums(Team const& team, Index groups, Index columns, Rows const& rows,
                                        Value const& value, Store const& store) {
  KOKKOS_IF_ON_HOST((static_cast<void>(team); for (Index g = 0; g < groups; ++g) {
    host_column_sums(
        columns, rows(g), [&](Index r, Index c) { return value(g, r, c); },
        [&](Index c, float sum) { store(g, c, sum); });
  }))
  KOKKOS_IF_ON_DEVICE((int const width = static_cast<int>(columns); int const sums = static_cast<int>(groups) * width;
                       Kokkos::parallel_for(Kokkos::TeamVectorRange(team, sums), [&](int i) {
                         Index const g = i / width;
                         Index const c = i % width;
                         store(g, c, serial_sum(0, rows(g), [&](Index r) { return value(g, r, c); }));
                       });))
}

// ---- the columns of a matrix: a team per tile of columns ------------------------------------------------------------

/// One thread goes down the rows of a tile.
struct HostColumns {
  static constexpr Index width = column_tile;

  static RowPolicy policy(ExecutionSpace const& exec, Index columns, [[maybe_unused]] int sums, Index groups = 1) {
    return row_policy(exec, groups * divide_up(columns, width));
  }

  template <class Value, class Store>
  KOKKOS_INLINE_FUNCTION static void sum([[maybe_unused]] Team const& team, Index rows, Index columns,
                                         Value const& value, Store const& store) {
    host_column_sums(columns, rows, value, store);
  }
};

/// Narrow tiles, so that there are many teams, each of which goes down 32 runs of rows at once; the runs' sums are
/// added in their order. Runs anywhere with the same bits; for tests on hosts, too.
struct DeviceColumns {
  static constexpr Index width = 16;
  static constexpr int runs = 32;
  static constexpr std::size_t scratch_bytes = runs * width * sizeof(float);

  static RowPolicy policy(ExecutionSpace const& exec, Index columns, int sums, Index groups = 1) {
    int const teams = static_cast<int>(groups * divide_up(columns, width));
    RowPolicy result =
        host_reaches_memory ? RowPolicy(exec, teams, 1, 1) : RowPolicy(exec, teams, runs, static_cast<int>(width));
    result.set_scratch_size(0, Kokkos::PerTeam(static_cast<std::size_t>(sums) * scratch_bytes));
    return result;
  }

  template <class Value, class Store>
  KOKKOS_INLINE_FUNCTION static void sum(Team const& team, Index rows, Index columns, Value const& value,
                                         Store const& store) {
    auto* const partial = static_cast<float*>(team.team_scratch(0).get_shmem(std::size_t{scratch_bytes}));
    int const lanes = static_cast<int>(columns);
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, runs), [&](int run) {
      Index const begin = run * rows / runs, end = (run + 1) * rows / runs;
      Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, lanes), [&](int c) {
        partial[run * width + c] = serial_sum(begin, end, [&](Index r) { return value(r, c); });
      });
    });
    team.team_barrier();
    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, lanes), [&](int c) {
      float total = 0.0F;
      for (int run = 0; run < runs; ++run) total += partial[run * width + c];
      store(c, total);
    });
  }
};

/// policy(exec, columns, sums, groups): teams, each of which may call sum so often: for every group of rows, a team per
/// tile of columns. sum(team, rows, columns, value, store): store(c, sum of value(r, c) over all rows) for the columns
/// of the team's tile, which begins at the tile's number times width and has at most that many; r and c count from the
/// tile's first. In an order that depends on the number of rows only.
using MatrixColumns = std::conditional_t<host_reaches_memory, HostColumns, DeviceColumns>;

} // namespace trainstone::Impl
