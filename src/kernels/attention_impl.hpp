#pragma once

// Bodies of attention.hpp; included by attention.cpp alone. A team computes a tile of query rows (forward) or a whole
// head (backward: d_k and d_v collect the tiles in order, so that no two teams add to one row). Scores and sums over
// tiles are kept in fp32 in the team's scratch, so that what is stored is rounded once. With dropout so are the weights
// of the values, which are what is left of a tile's probabilities.

#include "kernels/attention.hpp"

#include "core/launch.hpp"
#include "kernels/attention_shape.hpp"
#include "kernels/dropout_mask.hpp"
#include "kernels/math.hpp"
#include "kernels/row.hpp"
#include "kernels/shapes.hpp"

namespace trainstone {

namespace Impl {

/// Query rows per tile: backward loads and stores a row of d_k and d_v once per tile.
inline constexpr Index query_tile = 16;

/// store(u, scalar product of `vector` and row u of `rows`) for u in [0, count): four rows at a time, to load the
/// vector once for four.
template <class T, class Store>
KOKKOS_INLINE_FUNCTION void products_with_rows(Team const& team, Index size, T const* vector, T const* rows,
                                               Index stride, Index count, Store const& store) {
  team_for(team, divide_up(count, 4), [&](Index quad) {
    Index const first = 4 * quad;
    Index const last = count - 1; // repeated where the last four are not full
    T const* const row_0 = rows + first * stride;
    T const* const row_1 = rows + minimum(first + 1, last) * stride;
    T const* const row_2 = rows + minimum(first + 2, last) * stride;
    T const* const row_3 = rows + minimum(first + 3, last) * stride;
    float sum_0 = 0.0F, sum_1 = 0.0F, sum_2 = 0.0F, sum_3 = 0.0F;
#pragma omp simd reduction(+ : sum_0, sum_1, sum_2, sum_3)
    for (Index d = 0; d < size; ++d) {
      float const factor = to_float(vector[d]);
      sum_0 += factor * to_float(row_0[d]);
      sum_1 += factor * to_float(row_1[d]);
      sum_2 += factor * to_float(row_2[d]);
      sum_3 += factor * to_float(row_3[d]);
    }
    store(first, sum_0);
    if (first + 1 < count) store(first + 1, sum_1);
    if (first + 2 < count) store(first + 2, sum_2);
    if (first + 3 < count) store(first + 3, sum_3);
  });
}

/// Where a query row's mask is: in memory, or to be computed.
struct AttentionMask {
  DropoutRows rows;
  MaskByte* memory; ///< (B, NH, T, T), or null: not kept

  /// body(u, whether it is kept) for the keys u in [0, count), from the counters; kept for backward if there is memory.
  template <class Body>
  KOKKOS_INLINE_FUNCTION void compute(Team const& team, AttentionShape const& shape, Index b, Index h, Index t,
                                      Index count, Body const& body) const {
    MaskByte* const bytes = memory ? memory + shape.probabilities_offset(b, h) + t * shape.sequence : nullptr;
    dropout_for(team, rows.row(b, t, h), count, [&](Index u, bool kept) {
      if (bytes) bytes[u] = kept ? 1 : 0;
      body(u, kept);
    });
  }

  /// The same for backward: from memory, if there is any.
  template <class Body>
  KOKKOS_INLINE_FUNCTION void read(Team const& team, AttentionShape const& shape, Index b, Index h, Index t,
                                   Index count, Body const& body) const {
    if (!memory) return dropout_for(team, rows.row(b, t, h), count, body);
    MaskByte const* const bytes = memory + shape.probabilities_offset(b, h) + t * shape.sequence;
    row_for(team, count, [&](Index u) { body(u, bytes[u] != 0); });
  }
};

template <class T, bool drops>
struct AttentionForward {
  AttentionShape shape;
  Matrix<T const> qkv;
  Tensor4<T> probabilities;
  Matrix<T> out;
  AttentionMask mask; ///< if it drops

  /// The scores of one query row, and the weights of a tile's values.
  KOKKOS_INLINE_FUNCTION std::size_t scratch_bytes() const {
    return static_cast<std::size_t>(shape.sequence * (1 + (drops ? query_tile : 0))) * sizeof(float);
  }

  KOKKOS_INLINE_FUNCTION void operator()(Team const& team) const {
    Index const tiles = divide_up(shape.sequence, query_tile);
    Index const head = team.league_rank() / tiles;
    Index const b = head / shape.heads, h = head % shape.heads;
    Index const first = team.league_rank() % tiles * query_tile;
    Index const end = minimum(first + query_tile, shape.sequence);
    Index const stride = 3 * shape.channels();
    T const* const q = qkv.data() + shape.qkv_offset(b, h);
    T const* const k = q + shape.channels();
    T const* const v = k + shape.channels();
    T* const p = probabilities.data() + shape.probabilities_offset(b, h);
    T* const out_rows = out.data() + shape.out_offset(b, h);
    float* const scores = static_cast<float*>(team.team_scratch(1).get_shmem(scratch_bytes()));
    float* const weights = scores + shape.sequence;

    for (Index t = first; t < end; ++t) {
      products_with_rows(team, shape.head_size, q + t * stride, k, stride, t + 1,
                         [&](Index u, float product) { scores[u] = product * shape.scale(); });
      team.team_barrier();
      T* const p_row = p + t * shape.sequence;
      softmax(team, t + 1, scores, p_row);
      team.team_barrier();
      if constexpr (drops) {
        float* const weights_row = weights + (t - first) * shape.sequence;
        float const scale = mask.rows.scale;
        mask.compute(team, shape, b, h, t, t + 1,
                     [&](Index u, bool kept) { weights_row[u] = kept ? to_float(p_row[u]) * scale : 0.0F; });
        team.team_barrier();
      }
    }
    column_sums(
        team, end - first, shape.head_size, [&](Index i) { return first + i + 1; },
        [&](Index i, Index u, Index d) {
          float const value = to_float(v[u * stride + d]);
          if constexpr (drops) return weights[i * shape.sequence + u] * value;
          return to_float(p[(first + i) * shape.sequence + u]) * value;
        },
        [&](Index i, Index d, float sum) { out_rows[(first + i) * shape.channels() + d] = from_float<T>(sum); });
  }

  /// row = softmax of the first `count` scores, which it overwrites, 0 after them.
  KOKKOS_INLINE_FUNCTION void softmax(Team const& team, Index count, float* scores, T* row) const {
    float const maximum = row_max(team, count, [&](Index u) { return scores[u]; });
    double const sum = row_sum(team, count, [&](Index u) {
      float const e = exponential(scores[u] - maximum);
      scores[u] = e;
      return e;
    });
    float const inverse = static_cast<float>(1.0 / sum);
    row_for(team, count, [&](Index u) { row[u] = from_float<T>(scores[u] * inverse); });
    row_for(team, shape.sequence - count, [&](Index u) { row[count + u] = from_float<T>(0.0F); });
  }
};

template <class T, bool drops>
struct AttentionBackward {
  AttentionShape shape;
  Matrix<T const> qkv;
  Tensor4<T const> probabilities;
  Matrix<T const> d_out;
  Matrix<T> d_qkv;
  AttentionMask mask; ///< if it drops

  /// The gradient of the scores of one tile of query rows, those of the head's keys and values, and the weights that a
  /// tile's values had.
  KOKKOS_INLINE_FUNCTION std::size_t scratch_bytes() const {
    Index const tiles = drops ? 2 : 1;
    return static_cast<std::size_t>((tiles * query_tile + 2 * shape.head_size) * shape.sequence) * sizeof(float);
  }

  KOKKOS_INLINE_FUNCTION void operator()(Team const& team) const {
    Index const b = team.league_rank() / shape.heads, h = team.league_rank() % shape.heads;
    float* const d_scores = static_cast<float*>(team.team_scratch(1).get_shmem(scratch_bytes()));
    float* const d_keys = d_scores + query_tile * shape.sequence;
    float* const d_values = d_keys + shape.head_size * shape.sequence;
    float* const weights = d_values + shape.head_size * shape.sequence;
    for (Index first = 0; first < shape.sequence; first += query_tile) {
      Index const end = minimum(first + query_tile, shape.sequence);
      for (Index t = first; t < end; ++t)
        differentiate_softmax(team, b, h, t, d_scores + (t - first) * shape.sequence,
                              weights + (t - first) * shape.sequence);
      team.team_barrier();
      differentiate_queries(team, b, h, first, end, d_scores);
      differentiate_keys(team, b, h, first, end, d_scores, d_keys);
      differentiate_values(team, b, h, first, end, weights, d_values);
      team.team_barrier();
    }
    store_keys_and_values(team, b, h, d_keys, d_values);
  }

  /// d_row = p (d_p - sum of p d_p) / sqrt(HS) with d_p = d_out . v, for query row t and the keys up to it. Where p was
  /// dropped, d_p is 0 and so is the value's weight; else both are scaled.
  KOKKOS_INLINE_FUNCTION void differentiate_softmax(Team const& team, Index b, Index h, Index t, float* d_row,
                                                    float* weights_row) const {
    Index const stride = 3 * shape.channels();
    T const* const v = qkv.data() + shape.qkv_offset(b, h) + 2 * shape.channels();
    T const* const d_out_row = d_out.data() + shape.out_offset(b, h) + t * shape.channels();
    T const* const p_row = probabilities.data() + shape.probabilities_offset(b, h) + t * shape.sequence;
    products_with_rows(team, shape.head_size, d_out_row, v, stride, t + 1,
                       [&](Index u, float product) { d_row[u] = product; });
    team.team_barrier();
    if constexpr (drops) {
      float const factor = mask.rows.scale;
      mask.read(team, shape, b, h, t, t + 1, [&](Index u, bool kept) {
        d_row[u] = kept ? d_row[u] * factor : 0.0F;
        weights_row[u] = kept ? to_float(p_row[u]) * factor : 0.0F;
      });
      team.team_barrier();
    } else {
      static_cast<void>(weights_row);
    }
    float const mean = static_cast<float>(row_sum(team, t + 1, [&](Index u) { return to_float(p_row[u]) * d_row[u]; }));
    float const scale = shape.scale();
    row_for(team, t + 1, [&](Index u) { d_row[u] = to_float(p_row[u]) * (d_row[u] - mean) * scale; });
  }

  /// d_q of the query rows [first, end).
  KOKKOS_INLINE_FUNCTION void differentiate_queries(Team const& team, Index b, Index h, Index first, Index end,
                                                    float const* d_scores) const {
    Index const stride = 3 * shape.channels(), sequence = shape.sequence;
    T const* const k = qkv.data() + shape.qkv_offset(b, h) + shape.channels();
    T* const d_q = d_qkv.data() + shape.qkv_offset(b, h);
    column_sums(
        team, end - first, shape.head_size, [&](Index i) { return first + i + 1; },
        [&](Index i, Index u, Index d) { return d_scores[i * sequence + u] * to_float(k[u * stride + d]); },
        [&](Index i, Index d, float sum) { d_q[(first + i) * stride + d] = from_float<T>(sum); });
  }

  /// What the query rows [first, end) add to the sums of the keys before `end`: term(u, t, d) summed over the queries t
  /// that see key u. The tile that contains u is the first to write its row.
  template <class Term>
  KOKKOS_INLINE_FUNCTION void add_queries(Team const& team, Index first, Index end, float* sums,
                                          Term const& term) const {
    Index const size = shape.head_size;
    auto const first_query = [&](Index u) { return u > first ? u : first; };
    column_sums(
        team, end, size, [&](Index u) { return end - first_query(u); },
        [&](Index u, Index i, Index d) { return term(u, first_query(u) + i, d); },
        [&](Index u, Index d, float sum) {
          write(sums[u * size + d], sum, u >= first ? Write::overwrite : Write::add);
        });
  }

  KOKKOS_INLINE_FUNCTION void differentiate_keys(Team const& team, Index b, Index h, Index first, Index end,
                                                 float const* d_scores, float* d_keys) const {
    Index const stride = 3 * shape.channels(), sequence = shape.sequence;
    T const* const q = qkv.data() + shape.qkv_offset(b, h);
    add_queries(team, first, end, d_keys, [&](Index u, Index t, Index d) {
      return d_scores[(t - first) * sequence + u] * to_float(q[t * stride + d]);
    });
  }

  KOKKOS_INLINE_FUNCTION void differentiate_values(Team const& team, Index b, Index h, Index first, Index end,
                                                   float const* weights, float* d_values) const {
    Index const sequence = shape.sequence, channels = shape.channels();
    T const* const p = probabilities.data() + shape.probabilities_offset(b, h);
    T const* const d_out_rows = d_out.data() + shape.out_offset(b, h);
    add_queries(team, first, end, d_values, [&](Index u, Index t, Index d) {
      float const d_value = to_float(d_out_rows[t * channels + d]);
      if constexpr (drops) return weights[(t - first) * sequence + u] * d_value;
      return to_float(p[t * sequence + u]) * d_value;
    });
  }

  KOKKOS_INLINE_FUNCTION void store_keys_and_values(Team const& team, Index b, Index h, float const* d_keys,
                                                    float const* d_values) const {
    Index const size = shape.head_size;
    for (Index u = 0; u < shape.sequence; ++u) {
      T* const d_k = d_qkv.data() + shape.qkv_offset(b, h) + (3 * u + 1) * shape.channels();
      T* const d_v = d_k + shape.channels();
      row_for(team, size, [&](Index d) {
        d_k[d] = from_float<T>(d_keys[u * size + d]);
        d_v[d] = from_float<T>(d_values[u * size + d]);
      });
    }
  }
};

/// Starts body(drops) on `teams` teams, compiled with dropout or without.
template <class MakeBody>
void launch_attention(ExecutionSpace const& exec, Kernel const& kernel, Index teams, bool drops,
                      MakeBody const& make_body) {
  auto const launch = [&](auto const& body) {
    RowPolicy policy = row_policy(exec, teams);
    policy.set_scratch_size(1, Kokkos::PerTeam(body.scratch_bytes()));
    launch_for(kernel, policy, body);
  };
  if (drops) return launch(make_body(std::true_type()));
  launch(make_body(std::false_type()));
}

/// Of a mask that is kept, if there is any.
template <class Mask>
AttentionMask attention_mask(char const* what, Dropout const& dropout, AttentionShape const& shape, Mask const& mask) {
  if (mask.size() > 0) require_shape(what, mask, {shape.batch, shape.heads, shape.sequence, shape.sequence});
  return {DropoutRows(dropout, shape.sequence, shape.heads),
          mask.size() > 0 ? const_cast<MaskByte*>(mask.data()) : nullptr};
}

} // namespace Impl

template <class T>
void attention_forward(ExecutionSpace const& exec, Matrix<T const> qkv, Index heads, Tensor4<T> probabilities,
                       Matrix<T> out, Dropout const& dropout, Tensor4<MaskByte> mask) {
  Index const batch = Impl::extent(probabilities, 0), sequence = Impl::extent(probabilities, 2);
  Index const channels = Impl::extent(out, 1);
  Impl::AttentionShape const shape = Impl::attention_shape("attention_forward", batch, heads, sequence, channels);
  Impl::require_shape("attention_forward: probabilities", probabilities, {batch, heads, sequence, sequence});
  Impl::require_shape("attention_forward: qkv", qkv, {batch * sequence, 3 * channels});
  Impl::require_shape("attention_forward: out", out, {batch * sequence, channels});
  Impl::AttentionMask const kept = Impl::attention_mask("attention_forward: mask", dropout, shape, mask);
  Kernel const kernel{.label = "trainstone::attention::forward",
                      .phase = Phase::attention,
                      .flops = attention_forward_flops(batch, sequence, heads, shape.head_size),
                      .bytes = (4 * out.size() + probabilities.size()) * sizeof(T) + mask.size()};
  Index const tiles = batch * heads * Impl::divide_up(sequence, Impl::query_tile);
  Impl::launch_attention(exec, kernel, tiles, dropout.is_on(), [&]<class Drops>(Drops) {
    return Impl::AttentionForward<T, Drops::value>{shape, qkv, probabilities, out, kept};
  });
}

template <class T>
void attention_backward(ExecutionSpace const& exec, Matrix<T const> qkv, Tensor4<T const> probabilities,
                        Matrix<T const> d_out, Matrix<T> d_qkv, Dropout const& dropout, Tensor4<MaskByte const> mask) {
  Index const batch = Impl::extent(probabilities, 0), heads = Impl::extent(probabilities, 1);
  Index const sequence = Impl::extent(probabilities, 2), channels = Impl::extent(d_out, 1);
  Impl::AttentionShape const shape = Impl::attention_shape("attention_backward", batch, heads, sequence, channels);
  Impl::require_shape("attention_backward: probabilities", probabilities, {batch, heads, sequence, sequence});
  Impl::require_shape("attention_backward: qkv", qkv, {batch * sequence, 3 * channels});
  Impl::require_shape("attention_backward: d_out", d_out, {batch * sequence, channels});
  Impl::require_shape("attention_backward: d_qkv", d_qkv, {batch * sequence, 3 * channels});
  Impl::AttentionMask const kept = Impl::attention_mask("attention_backward: mask", dropout, shape, mask);
  Kernel const kernel{.label = "trainstone::attention::backward",
                      .phase = Phase::attention,
                      .flops = attention_backward_flops(batch, sequence, heads, shape.head_size),
                      .bytes = (7 * d_out.size() + probabilities.size()) * sizeof(T) + mask.size()};
  Impl::launch_attention(exec, kernel, batch * heads, dropout.is_on(), [&]<class Drops>(Drops) {
    return Impl::AttentionBackward<T, Drops::value>{shape, qkv, probabilities, d_out, d_qkv, kept};
  });
}

} // namespace trainstone
