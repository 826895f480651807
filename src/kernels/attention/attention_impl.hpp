#pragma once

// Bodies of attention.hpp; included by attention.cpp alone. A team computes a tile of queries (forward) or a whole head
// (backward: d_k and d_v collect the tiles of queries in order, so that no two teams add to one row). Both go through
// the keys by tiles, too: products of tiles as flash attention has them, but a tile of queries keeps the scores of all
// its keys, rows of which are what the softmax is of. All that is in the scratch is fp32: what is stored is rounded
// once.

#include "kernels/attention/attention.hpp"

#include "core/launch.hpp"
#include "kernels/common/attention_shape.hpp"
#include "kernels/common/math.hpp"
#include "kernels/common/shapes.hpp"
#include "kernels/dropout_mask.hpp"
#include "kernels/gemm/tile_product.hpp"
#include "kernels/gemm/tile_scratch.hpp"

namespace trainstone {

namespace Impl {

static_assert(Tiles::queries == Tiles::keys);                 // the last tile of keys is that of the queries themselves
static_assert(Tiles::patch_columns % Tiles::patch_rows == 0); // computed_scores reach as far as a patch of their rows

/// A tile of queries of one head, and one of keys that they see: rows of the head's matrices, from `first` on.
struct SquareTile {
  Index first, count;
  Index whole; ///< count, rounded up to whole patches of columns

  KOKKOS_INLINE_FUNCTION SquareTile(Index row, Index sequence)
      : first(row), count(minimum(Tiles::keys, sequence - row)), whole(round_up(count, Tiles::patch_columns)) {}
};

/// sums (queries, T) = left (queries, HS) times the transposed rows of a head's keys, or values, that the queries see;
/// patches above the diagonal are left out. `transposed` (HS, keys) holds one tile of these after the other.
template <class T>
KOKKOS_INLINE_FUNCTION void multiply_with_seen_keys(Team const& team, AttentionShape const& shape,
                                                    SquareTile const& queries, Tile left, T const* rows,
                                                    Tile transposed, Tile sums) {
  Index const stride = 3 * shape.channels(), size = shape.head_size;
  for (Index key = 0; key <= queries.first; key += Tiles::keys) {
    SquareTile const keys(key, shape.sequence);
    load_columns(team, rows + key * stride, stride, keys.count, size, 1.0F, transposed, keys.whole);
    team.team_barrier();
    multiply(team, queries.count, keys.count, size, RowsOf{left.data, left.stride}, transposed, sums.from(0, key),
             Write::overwrite, key == queries.first ? Skip::sums_above : Skip::nothing);
    team.team_barrier();
  }
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

/// A row of scores up to the last patch that its query t sees a key of: what is computed of it.
KOKKOS_INLINE_FUNCTION Index computed_scores(Index t) { return round_up(t + 1, Tiles::patch_columns); }

template <class T, bool drops>
struct AttentionForward {
  AttentionShape shape;
  Matrix<T const> qkv;
  Tensor4<T> probabilities;
  Matrix<T> out;
  AttentionMask mask; ///< if it drops

  struct Scratch {
    Tile queries;         ///< (queries, HS), times the scale
    Tile transposed_keys; ///< (HS, keys)
    Tile values;          ///< (keys, HS)
    Tile sums;            ///< (queries, HS)

    KOKKOS_INLINE_FUNCTION Scratch(ScratchPool& pool, Index head_size)
        : queries(pool.take(Tiles::queries, head_size)),
          transposed_keys(pool.take(head_size, Tiles::keys)),
          values(pool.take(Tiles::keys, round_up(head_size, Tiles::patch_columns))),
          sums(pool.take(Tiles::queries, values.stride)) {}
  };

  /// Scores of a tile of queries, which become the weights of the values.
  KOKKOS_INLINE_FUNCTION Tile take_scores(ScratchPool& pool) const {
    return pool.take(Tiles::queries, round_up(shape.sequence, Tiles::keys));
  }

  KOKKOS_INLINE_FUNCTION ScratchNeeds needs() const {
    ScratchPool tiles, rows;
    Scratch const scratch(tiles, shape.head_size);
    static_cast<void>(take_scores(rows));
    return {tiles.bytes(), rows.bytes()};
  }
  Index teams() const { return shape.batch * shape.heads * divide_up(shape.sequence, Tiles::queries); }

  KOKKOS_INLINE_FUNCTION void operator()(Team const& team) const {
    Index const tiles = divide_up(shape.sequence, Tiles::queries), head = team.league_rank() / tiles;
    Index const b = head / shape.heads, h = head % shape.heads;
    SquareTile const queries(team.league_rank() % tiles * Tiles::queries, shape.sequence);
    ScratchPool pool = needs().take_tiles(team), rows = needs().take_rows(team);
    Scratch const s(pool, shape.head_size);
    Tile const scores = take_scores(rows);
    T const* const q = qkv.data() + shape.qkv_offset(b, h);
    Index const stride = 3 * shape.channels();
    load_rows(team, q + queries.first * stride, stride, queries.count, shape.head_size, shape.scale(), s.queries,
              round_up(queries.count, Tiles::patch_rows), shape.head_size);
    multiply_with_seen_keys(team, shape, queries, s.queries, q + shape.channels(), s.transposed_keys, scores);
    for (Index i = 0; i < queries.count; ++i) softmax(team, b, h, queries.first + i, scores.data + i * scores.stride);
    if (!weighs()) return;
    weigh_values(team, s, queries, q + 2 * shape.channels(), scores);
    T* const out_rows = out.data() + shape.out_offset(b, h) + queries.first * shape.channels();
    tile_for(team, queries.count, shape.head_size,
             [&](int i, int d) { out_rows[i * shape.channels() + d] = from_float<T>(s.sums(i, d)); });
  }

  /// Otherwise the probabilities are enough.
  KOKKOS_INLINE_FUNCTION bool weighs() const { return out.size() > 0; }

  /// The probabilities of query t, whose scores become the weights of its values: 0 where they are masked or dropped.
  KOKKOS_INLINE_FUNCTION void softmax(Team const& team, Index b, Index h, Index t, float* scores) const {
    Index const computed = computed_scores(t), stored = minimum(computed, shape.sequence);
    T* const p = probabilities.data() + shape.probabilities_offset(b, h) + t * shape.sequence;
    row_for(team, computed - (t + 1), [&](Index u) { scores[t + 1 + u] = -Kokkos::Experimental::infinity_v<float>; });
    team.team_barrier();
    float const maximum = row_max(team, computed, [&](Index u) { return scores[u]; });
    double const sum = row_sum(team, computed, [&](Index u) {
      float const e = exponential(scores[u] - maximum);
      scores[u] = e;
      return e;
    });
    team.team_barrier();
    float const inverse = static_cast<float>(1.0 / sum);
    row_for(team, stored, [&](Index u) {
      p[u] = from_float<T>(scores[u] * inverse);
      scores[u] = to_float(p[u]);
    });
    row_for(team, shape.sequence - stored, [&](Index u) { p[stored + u] = from_float<T>(0.0F); });
    team.team_barrier();
    if constexpr (drops) {
      if (!weighs() && mask.memory == nullptr) return;
      float const scale = mask.rows.scale;
      mask.compute(team, shape, b, h, t, t + 1,
                   [&](Index u, bool kept) { scores[u] = kept ? scores[u] * scale : 0.0F; });
      team.team_barrier();
    }
  }

  KOKKOS_INLINE_FUNCTION void weigh_values(Team const& team, Scratch const& s, SquareTile const& queries, T const* v,
                                           Tile weights) const {
    Index const stride = 3 * shape.channels(), size = shape.head_size;
    for (Index key = 0; key <= queries.first; key += Tiles::keys) {
      SquareTile const keys(key, shape.sequence);
      load_rows(team, v + key * stride, stride, keys.count, size, 1.0F, s.values, keys.count, s.values.stride);
      team.team_barrier();
      multiply(team, queries.count, size, keys.count, RowsOf{weights.data + key, weights.stride}, s.values, s.sums,
               key == 0 ? Write::overwrite : Write::add, key == queries.first ? Skip::terms_above : Skip::nothing);
      team.team_barrier();
    }
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

  struct Scratch {
    Tile queries, d_out;    ///< (queries, HS)
    Tile keys;              ///< (keys, HS)
    Tile transposed_values; ///< (HS, keys)
    Tile d_queries;         ///< (queries, HS)

    KOKKOS_INLINE_FUNCTION Scratch(ScratchPool& pool, Index head_size)
        : queries(pool.take(Tiles::queries, round_up(head_size, Tiles::patch_columns))),
          d_out(pool.take(Tiles::queries, queries.stride)),
          keys(pool.take(Tiles::keys, queries.stride)),
          transposed_values(pool.take(head_size, Tiles::keys)),
          d_queries(pool.take(Tiles::queries, queries.stride)) {}
  };

  /// What a tile of queries has for all keys, and the sums over the tiles for all keys.
  struct Rows {
    Tile d_scores, weights; ///< (queries, T)
    Tile d_keys, d_values;  ///< (T, HS)

    KOKKOS_INLINE_FUNCTION Rows(ScratchPool& pool, Index sequence, Index head_size)
        : d_scores(pool.take(Tiles::queries, round_up(sequence, Tiles::keys))),
          weights(pool.take(Tiles::queries, d_scores.stride)),
          d_keys(pool.take(d_scores.stride, round_up(head_size, Tiles::patch_columns))),
          d_values(pool.take(d_scores.stride, d_keys.stride)) {}
  };

  KOKKOS_INLINE_FUNCTION ScratchNeeds needs() const {
    ScratchPool tiles, rows;
    Scratch const scratch(tiles, shape.head_size);
    Rows const sums(rows, shape.sequence, shape.head_size);
    return {tiles.bytes(), rows.bytes()};
  }
  Index teams() const { return shape.batch * shape.heads; }

  KOKKOS_INLINE_FUNCTION void operator()(Team const& team) const {
    Index const b = team.league_rank() / shape.heads, h = team.league_rank() % shape.heads;
    ScratchPool tile_pool = needs().take_tiles(team), row_pool = needs().take_rows(team);
    Scratch const s(tile_pool, shape.head_size);
    Rows const rows(row_pool, shape.sequence, shape.head_size);
    for (Index first = 0; first < shape.sequence; first += Tiles::queries) {
      SquareTile const queries(first, shape.sequence);
      differentiate_weights(team, s, b, h, queries, rows.d_scores);
      for (Index i = 0; i < queries.count; ++i)
        differentiate_softmax(team, b, h, first + i, rows.d_scores.data + i * rows.d_scores.stride,
                              rows.weights.data + i * rows.weights.stride);
      team.team_barrier();
      differentiate_products(team, s, b, h, queries, rows);
      T* const d_q = d_qkv.data() + shape.qkv_offset(b, h) + first * 3 * shape.channels();
      store(team, queries.count, s.d_queries, d_q);
      team.team_barrier();
    }
    T* const d_k = d_qkv.data() + shape.qkv_offset(b, h) + shape.channels();
    store(team, shape.sequence, rows.d_keys, d_k);
    store(team, shape.sequence, rows.d_values, d_k + shape.channels());
  }

  /// Loads the tile's queries and the gradient of their out; that times the values is the gradient of the weights.
  KOKKOS_INLINE_FUNCTION void differentiate_weights(Team const& team, Scratch const& s, Index b, Index h,
                                                    SquareTile const& queries, Tile d_weights) const {
    Index const stride = 3 * shape.channels(), size = shape.head_size, width = s.queries.stride;
    Index const rows = round_up(queries.count, Tiles::patch_rows);
    T const* const q = qkv.data() + shape.qkv_offset(b, h);
    T const* const v = q + 2 * shape.channels();
    T const* const d_o = d_out.data() + shape.out_offset(b, h) + queries.first * shape.channels();
    load_rows(team, q + queries.first * stride, stride, queries.count, size, 1.0F, s.queries, rows, width);
    load_rows(team, d_o, shape.channels(), queries.count, size, 1.0F, s.d_out, rows, width);
    multiply_with_seen_keys(team, shape, queries, s.d_out, v, s.transposed_values, d_weights);
  }

  /// Of the gradient of query t's weights, that of its scores: (w d_w - p sum of w d_w) / sqrt(HS) with the weights w,
  /// which are the probabilities p where these are not dropped. 0 for the keys after t.
  KOKKOS_INLINE_FUNCTION void differentiate_softmax(Team const& team, Index b, Index h, Index t, float* d_row,
                                                    float* weights) const {
    Index const count = t + 1, computed = computed_scores(t);
    T const* const p = probabilities.data() + shape.probabilities_offset(b, h) + t * shape.sequence;
    if constexpr (drops) {
      float const factor = mask.rows.scale;
      mask.read(team, shape, b, h, t, count,
                [&](Index u, bool kept) { weights[u] = kept ? to_float(p[u]) * factor : 0.0F; });
    } else {
      row_for(team, count, [&](Index u) { weights[u] = to_float(p[u]); });
    }
    row_for(team, computed - count, [&](Index u) { weights[count + u] = d_row[count + u] = 0.0F; });
    team.team_barrier();
    float const sum = static_cast<float>(row_sum(team, computed, [&](Index u) { return weights[u] * d_row[u]; }));
    float const scale = shape.scale();
    row_for(team, count, [&](Index u) { d_row[u] = (weights[u] * d_row[u] - to_float(p[u]) * sum) * scale; });
  }

  /// d_q of the tile's queries, and what they add to the sums of the keys that they see. The tile that contains a key
  /// is the first to write its sums.
  KOKKOS_INLINE_FUNCTION void differentiate_products(Team const& team, Scratch const& s, Index b, Index h,
                                                     SquareTile const& queries, Rows const& rows) const {
    Index const stride = 3 * shape.channels(), size = shape.head_size;
    T const* const k = qkv.data() + shape.qkv_offset(b, h) + shape.channels();
    for (Index key = 0; key <= queries.first; key += Tiles::keys) {
      SquareTile const keys(key, shape.sequence);
      bool const own = key == queries.first;
      Skip const skip = own ? Skip::terms_above : Skip::nothing;
      Write const mode = own ? Write::overwrite : Write::add;
      Tile const d_scores = rows.d_scores.from(0, key), weights = rows.weights.from(0, key);
      load_rows(team, k + key * stride, stride, keys.count, size, 1.0F, s.keys, keys.count, s.keys.stride);
      team.team_barrier();
      multiply(team, queries.count, size, keys.count, RowsOf{d_scores.data, d_scores.stride}, s.keys, s.d_queries,
               key == 0 ? Write::overwrite : Write::add, skip);
      multiply(team, keys.count, size, queries.count, ColumnsOf{d_scores.data, d_scores.stride}, s.queries,
               rows.d_keys.from(key, 0), mode, skip);
      multiply(team, keys.count, size, queries.count, ColumnsOf{weights.data, weights.stride}, s.d_out,
               rows.d_values.from(key, 0), mode, skip);
      team.team_barrier();
    }
  }

  KOKKOS_INLINE_FUNCTION void store(Team const& team, Index count, Tile rows, T* target) const {
    Index const stride = 3 * shape.channels();
    tile_for(team, count, shape.head_size, [&](int i, int d) { target[i * stride + d] = from_float<T>(rows(i, d)); });
  }
};

/// Starts make_body(drops), compiled with dropout or without.
template <class MakeBody>
void launch_attention(ExecutionSpace const& exec, Kernel const& kernel, bool drops, MakeBody const& make_body) {
  auto const launch = [&](auto const& body) { launch_for(kernel, body.needs().policy(exec, body.teams()), body); };
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
  Index const channels = Impl::extent(qkv, 1) / 3;
  bool const weighs = out.size() > 0;
  Impl::AttentionShape const shape = Impl::attention_shape("attention_forward", batch, heads, sequence, channels);
  Impl::require_shape("attention_forward: probabilities", probabilities, {batch, heads, sequence, sequence});
  Impl::require_shape("attention_forward: qkv", qkv, {batch * sequence, 3 * channels});
  if (weighs) Impl::require_shape("attention_forward: out", out, {batch * sequence, channels});
  Impl::AttentionMask const kept = Impl::attention_mask("attention_forward: mask", dropout, shape, mask);
  auto const values = static_cast<std::uint64_t>((weighs ? 4 : 2) * batch * sequence * channels);
  std::uint64_t const flops =
      (weighs ? attention_forward_flops : attention_probabilities_flops)(batch, sequence, heads, shape.head_size);
  Kernel const kernel{.label = weighs ? "trainstone::attention::forward" : "trainstone::attention::probabilities",
                      .phase = Phase::attention,
                      .flops = flops,
                      .bytes = (values + probabilities.size()) * sizeof(T) + mask.size()};
  Impl::launch_attention(exec, kernel, dropout.is_on(), [&]<class Drops>(Drops) {
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
  Impl::launch_attention(exec, kernel, dropout.is_on(), [&]<class Drops>(Drops) {
    return Impl::AttentionBackward<T, Drops::value>{shape, qkv, probabilities, d_out, d_qkv, kept};
  });
}

} // namespace trainstone
