#pragma once

// Sums over the rows of a matrix on devices, where a lane goes down rows and reads 16 bytes at a time. Included by
// files of kernels' bodies only.

#include "kernels/common/held_row.hpp"

namespace trainstone::Impl {

/// Of so many terms for each column of a tile.
template <int terms, int columns>
struct ColumnSums {
  float values[terms][columns] = {};

  KOKKOS_FUNCTION ColumnSums& operator+=(ColumnSums const& more) {
    TRAINSTONE_ALL_AT_ONCE
    for (int term = 0; term < terms; ++term) {
      TRAINSTONE_ALL_AT_ONCE
      for (int c = 0; c < columns; ++c) values[term][c] += more.values[term][c];
    }
    return *this;
  }
};

/// A team per tile of columns, which is so wide that lanes read whole sectors of 32 bytes. Lane l of a team adds up the
/// rows l, l + lanes, ...; then the lanes of a thread are added, then the threads in their order.
template <class T, int terms>
class ColumnChunks {
public:
  static constexpr int width = 16, chunks = width / Chunk<T>::size; ///< of a tile: columns, and chunks of a row
  using Sums = ColumnSums<terms, width>;

  static RowPolicy policy(ExecutionSpace const& exec, Index columns, Index groups) {
    int const teams = static_cast<int>(groups * divide_up(columns, width));
    RowPolicy result = host_reaches_memory ? RowPolicy(exec, teams, 1, 1) : RowPolicy(exec, teams, threads, vector);
    result.set_scratch_size(0, Kokkos::PerTeam(threads * sizeof(Sums)));
    return result;
  }

  /// add(r, sums of a lane) for r in [0, rows), then store(term, column of the tile, total).
  template <class Add, class Store>
  static KOKKOS_FUNCTION void sum(Team const& team, Index rows, Index columns, Add const& add, Store const& store) {
    auto* const of_threads = static_cast<Sums*>(team.team_scratch(0).get_shmem(threads * sizeof(Sums)));
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, int{threads}), [&](int thread) {
      Sums total;
      Kokkos::parallel_reduce(
          Kokkos::ThreadVectorRange(team, int{vector}),
          [&](int lane, Sums& own) {
            Index const first = thread * vector + lane;
            for (Index r = first; r < rows; r += 2 * threads * vector) {
              add(r, own);
              if (r + threads * vector < rows) add(r + threads * vector, own);
            }
          },
          total);
      Kokkos::single(Kokkos::PerThread(team), [&] { of_threads[thread] = total; });
    });
    team.team_barrier();
    int const wide = static_cast<int>(columns);
    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, terms * wide), [&](int i) {
      float total = 0;
      for (int thread = 0; thread < threads; ++thread) total += of_threads[thread].values[i / wide][i % wide];
      store(i / wide, i % wide, total);
    });
  }

private:
  static constexpr int threads = 16, vector = 32;
};

} // namespace trainstone::Impl

template <int terms, int columns>
struct Kokkos::reduction_identity<trainstone::Impl::ColumnSums<terms, columns>> {
  KOKKOS_FORCEINLINE_FUNCTION static trainstone::Impl::ColumnSums<terms, columns> sum() { return {}; }
};
