#pragma once

// Rows of logits: their largest, the sum of the powers, and how they become weights. On hosts each is a pass over the
// row, which stays in the cache. On devices the largest and the sum are found in one pass, and the rows that are in
// work stay in the second-level cache. Included by files of kernels' bodies only.

#include "kernels/common/held_row.hpp"
#include "kernels/common/math.hpp"
#include "kernels/common/shapes.hpp"

#include <type_traits>

namespace trainstone::Impl {

/// The maximum of a row and the sum of e^(x - maximum).
struct SoftmaxStatistics {
  float maximum;
  double sum;

  KOKKOS_INLINE_FUNCTION float loss(float target_logit) const {
    return static_cast<float>(Kokkos::log(sum) + (static_cast<double>(maximum) - static_cast<double>(target_logit)));
  }
};

/// A row of fp32 holds the powers until they are scaled; 16 bits would round them, and they are computed twice. So they
/// are on devices, where an exponential costs less than to write a row once more.
template <class T>
inline constexpr bool keeps_powers = host_reaches_memory && std::is_same_v<T, float>;

template <class T>
KOKKOS_INLINE_FUNCTION void keep_power([[maybe_unused]] T& logit, [[maybe_unused]] float power) {
  if constexpr (keeps_powers<T>) logit = power;
}

/// A row of logits, of which the first `valid` count.
template <class T>
class CachedLogits {
public:
  KOKKOS_FUNCTION CachedLogits(Team const& team, T* row, Index valid, Index columns)
      : m_team(team), m_row(row), m_valid(valid), m_columns(columns) {}

  KOKKOS_FUNCTION float maximum() const {
    return row_max(m_team, m_valid, [&](Index v) { return to_float(m_row[v]); });
  }
  /// The sum of e^(x - maximum), which replaces x where powers are kept: that is no value at run time, because
  /// compilers would add up in another order where they store.
  template <bool keeps>
  KOKKOS_FUNCTION double sum_of_powers(float maximum) const {
    return row_sum(m_team, m_valid, [&](Index v) {
      float const power = exponential(to_float(m_row[v]) - maximum);
      if constexpr (keeps) keep_power(m_row[v], power);
      return power;
    });
  }
  template <bool keeps>
  KOKKOS_FUNCTION SoftmaxStatistics statistics() const {
    float const most = maximum();
    return {most, sum_of_powers<keeps>(most)};
  }
  /// Logits, or the powers that were kept, become factor e^(x - maximum); padding becomes 0.
  KOKKOS_FUNCTION void become_weights(float maximum, float factor) const {
    row_for(m_team, m_valid, [&](Index v) {
      float const stored = to_float(m_row[v]);
      float const power = keeps_powers<T> ? stored : exponential(stored - maximum);
      m_row[v] = from_float<T>(power * factor);
    });
    row_for(m_team, m_columns - m_valid, [&](Index v) { m_row[m_valid + v] = from_float<T>(0.0F); });
  }

private:
  Team const& m_team;
  T* m_row;
  Index m_valid, m_columns;
};

/// The same on a device, where a team of `Lanes` reads 16 bytes at a time.
template <class T, class Lanes>
class ChunkedLogits {
public:
  using Value = std::remove_const_t<T>;
  using Held = std::conditional_t<std::is_const_v<T>, Chunk<Value> const, Chunk<Value>>;

  KOKKOS_FUNCTION ChunkedLogits(Lanes const& lanes, T* row, Index valid, Index columns)
      : m_lanes(lanes),
        m_chunks(reinterpret_cast<Held*>(row)),
        m_valid(static_cast<int>(valid)),
        m_columns(static_cast<int>(columns)) {}

  KOKKOS_FUNCTION float maximum() const {
    float most = nothing();
    for_chunks(m_valid,
               [&](int, Chunk<Value> const& chunk, int count) { most = larger(most, maximum_of(chunk, count)); });
    return m_lanes.maximum(most);
  }
  template <bool /*keeps*/>
  KOKKOS_FUNCTION double sum_of_powers(float maximum) const {
    float sum = 0;
    for_chunks(m_valid, [&](int, Chunk<Value> const& chunk, int count) { sum += powers_of(chunk, count, maximum); });
    return m_lanes.sum(sum);
  }
  /// Of each lane relative to its own largest logit so far, then of all.
  template <bool /*keeps*/>
  KOKKOS_FUNCTION SoftmaxStatistics statistics() const {
    float most = nothing(), sum = 0;
    for_chunks(m_valid, [&](int, Chunk<Value> const& chunk, int count) {
      float const before = most;
      most = larger(most, maximum_of(chunk, count));
      if (most > before) sum *= exponential_of<Value>(before - most);
      sum += powers_of(chunk, count, most);
    });
    float const all = m_lanes.maximum(most);
    return {all, m_lanes.sum(sum * exponential_of<Value>(most - all))};
  }
  KOKKOS_FUNCTION void become_weights(float maximum, float factor) const {
    for_chunks(m_columns, [&](int place, Chunk<Value> const& chunk, int) {
      m_chunks[place] = Chunk<Value>::of([&](int element) {
        float const weight = exponential_of<Value>(chunk[element] - maximum) * factor;
        return place * size + element < m_valid ? weight : 0.0F;
      });
    });
  }

private:
  static constexpr int size = Chunk<Value>::size, together = 4; ///< chunks on their way to a lane

  static KOKKOS_FUNCTION float nothing() { return -Kokkos::Experimental::infinity_v<float>; }
  /// NaN is passed over.
  static KOKKOS_FUNCTION float larger(float most, float value) { return value > most ? value : most; }
  static KOKKOS_FUNCTION float maximum_of(Chunk<Value> const& chunk, int count) {
    float most = nothing();
    for_elements([&](int element) {
      if (element < count) most = larger(most, chunk[element]);
    });
    return most;
  }
  static KOKKOS_FUNCTION float powers_of(Chunk<Value> const& chunk, int count, float maximum) {
    float sum = 0;
    for_elements([&](int element) {
      if (element < count) sum += exponential_of<Value>(chunk[element] - maximum);
    });
    return sum;
  }

  /// body(number, chunk, how many of its elements are among the first `end`), for the chunks of this lane.
  template <class Body>
  KOKKOS_FUNCTION void for_chunks(int end, Body const& body) const {
    for (int first = m_lanes.own(); first * size < end; first += together * Lanes::count) {
      Chunk<Value> chunks[together];
      for_some([&](int i) {
        if (int const place = first + i * Lanes::count; place * size < end) chunks[i] = m_chunks[place];
      });
      for_some([&](int i) {
        if (int const place = first + i * Lanes::count; place * size < end) body(place, chunks[i], end - place * size);
      });
    }
  }
  template <class Body>
  static KOKKOS_FUNCTION void for_some(Body const& body) {
    TRAINSTONE_ALL_AT_ONCE
    for (int i = 0; i < together; ++i) body(i);
  }
  template <class Body>
  static KOKKOS_FUNCTION void for_elements(Body const& body) {
    TRAINSTONE_ALL_AT_ONCE
    for (int element = 0; element < size; ++element) body(element);
  }

  Lanes const& m_lanes;
  Held* m_chunks;
  int m_valid, m_columns;
};

template <class T, class Body>
void launch_chunked_logits(Kernel const& kernel, ExecutionSpace const& exec, Matrix<T> const& logits, Index valid,
                           Body const& body) {
  using Lanes = LanesOfTeam<512>;
  using Policy = Kokkos::TeamPolicy<ExecutionSpace, Kokkos::LaunchBounds<Lanes::count, 2>>;
  Index const columns = extent(logits, 1);
  T* const data = logits.data();
  launch_for(
      kernel, Policy(exec, static_cast<int>(extent(logits, 0)), Lanes::count / 32, 32),
      KOKKOS_LAMBDA(Team const& team) {
        Index const n = team.league_rank();
        Lanes const lanes(team);
        body(team, ChunkedLogits<T, Lanes>(lanes, data + n * columns, valid, columns), n);
      });
}

/// body(team, logits of row n, n) for every row.
template <class T, class Body>
void launch_logits(Kernel const& kernel, ExecutionSpace const& exec, Matrix<T> const& logits, Index valid,
                   Body const& body) {
  Index const rows = extent(logits, 0), columns = extent(logits, 1);
  T* const data = logits.data();
  if constexpr (!host_reaches_memory)
    if (rows > 0 && lie_in_chunks<std::remove_const_t<T>>(columns, {data}))
      return launch_chunked_logits<T>(kernel, exec, logits, valid, body);
  launch_for(
      kernel, row_policy(exec, rows), KOKKOS_LAMBDA(Team const& team) {
        Index const n = team.league_rank();
        body(team, CachedLogits<T>(team, data + n * columns, valid, columns), n);
      });
}

} // namespace trainstone::Impl
