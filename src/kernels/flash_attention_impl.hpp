#pragma once

// Bodies of flash_attention.hpp; included by flash_attention.cpp alone. A team computes a tile of queries (forward) or
// a whole head (backward: d_k and d_v collect the tiles in order, so that no two teams add to one row). Scores lie
// transposed in the scratch, a column per query: maxima and sums over keys are vector code then, and only queries and
// results are ever transposed, once per tile. All that is in the scratch is fp32.

#include "kernels/flash_attention.hpp"

#include "core/launch.hpp"
#include "kernels/attention_shape.hpp"
#include "kernels/dropout_mask.hpp"
#include "kernels/math.hpp"
#include "kernels/shapes.hpp"
#include "kernels/tile_product.hpp"
#include "kernels/tile_scratch.hpp"

namespace trainstone {

namespace Impl {

static_assert(Tiles::queries % Tiles::keys == 0 && Tiles::keys % Tiles::patch_columns == 0);
static_assert(Tiles::keys % Tiles::patch_rows == 0 && Tiles::patch_rows % 4 == 0); // four keys share random numbers

/// A tile of queries of one head. Columns are queries, rounded up to whole patches.
struct QueryTile {
  Index b, h;
  Index first, count, columns;

  KOKKOS_INLINE_FUNCTION QueryTile(Index sample, Index head, Index query, Index sequence)
      : b(sample),
        h(head),
        first(query),
        count(minimum(Tiles::queries, sequence - query)),
        columns(round_up(count, Tiles::patch_columns)) {}
};

/// A tile of keys that some of the queries see. Rows are keys, rounded up to whole patches.
struct KeyTile {
  Index first, count, rows;
  Index seen; ///< the first column whose query sees one of them

  KOKKOS_INLINE_FUNCTION KeyTile(QueryTile const& queries, Index key, Index sequence)
      : first(key),
        count(minimum(Tiles::keys, sequence - key)),
        rows(round_up(count, Tiles::patch_rows)),
        seen(key > queries.first ? key - queries.first : 0) {}
};

/// Whether the query of a column sees the key of a row: rows beyond the sequence are seen by none of its queries.
struct CausalMask {
  int shift; ///< the first key minus the first query

  KOKKOS_INLINE_FUNCTION CausalMask(QueryTile const& queries, KeyTile const& keys)
      : shift(static_cast<int>(keys.first - queries.first)) {}
  KOKKOS_INLINE_FUNCTION bool sees(int row, int column) const { return row + shift <= column; }
};

/// Which keys are dropped for which queries.
struct KeyDropout {
  DropoutRows rows;
  bool is_on;

  KeyDropout(Dropout const& dropout, AttentionShape const& shape)
      : rows(dropout, shape.sequence, shape.heads), is_on(dropout.is_on()) {}

  /// body(row, column, factor) for all rows of `keys` and the columns that see one of them, in any order.
  template <class Body>
  KOKKOS_INLINE_FUNCTION void for_each(Team const& team, QueryTile const& queries, KeyTile const& keys,
                                       Body const& body) const {
    int const seen = static_cast<int>(keys.seen);
    Index const columns = queries.columns - keys.seen;
    if (!is_on) {
      tile_for(team, keys.rows, columns, [&](int row, int column) { body(row, seen + column, 1.0F); });
      return;
    }
    tile_for(team, keys.rows / 4, columns, [&](int block, int column) {
      DropoutRow const mask = rows.row(queries.b, queries.first + seen + column, queries.h);
      RandomBlock const random = mask.random(keys.first / 4 + block);
      for (int i = 0; i < 4; ++i) body(4 * block + i, seen + column, mask.keeps(random.words[i]) ? mask.scale : 0.0F);
    });
  }
};

template <class T>
struct FlashForward {
  AttentionShape shape;
  KeyDropout dropout;
  Matrix<T const> qkv;
  Vector<float> log_sum_exp;
  Matrix<T> out;

  struct Scratch {
    Tile queries;   ///< transposed (HS, queries), times the scale
    Tile keys;      ///< of a tile (keys, HS): keys, then values
    Tile scores;    ///< transposed (keys, queries), then probabilities times the total
    Tile sums;      ///< out transposed (HS, queries), times the total
    float* maximum; ///< of the scores so far, per query
    float* total;   ///< of e^(score - maximum) so far
    float* correction;

    KOKKOS_INLINE_FUNCTION Scratch(ScratchPool& pool, Index head_size)
        : queries(pool.take(head_size, Tiles::queries)),
          keys(pool.take(Tiles::keys, round_up(head_size, Tiles::patch_rows))),
          scores(pool.take(Tiles::keys, Tiles::queries)),
          sums(pool.take(round_up(head_size, Tiles::patch_rows), Tiles::queries)),
          maximum(pool.take(Tiles::queries)),
          total(pool.take(Tiles::queries)),
          correction(pool.take(Tiles::queries)) {}
  };

  KOKKOS_INLINE_FUNCTION ScratchNeeds needs() const {
    ScratchPool pool;
    Scratch const tiles(pool, shape.head_size);
    return {pool.bytes(), 0};
  }

  KOKKOS_INLINE_FUNCTION void operator()(Team const& team) const {
    Index const tiles = divide_up(shape.sequence, Tiles::queries);
    Index const head = team.league_rank() / tiles;
    QueryTile const queries(head / shape.heads, head % shape.heads, team.league_rank() % tiles * Tiles::queries,
                            shape.sequence);
    ScratchPool pool = needs().take_tiles(team);
    Scratch const s(pool, shape.head_size);
    Index const stride = 3 * shape.channels();
    T const* const q = qkv.data() + shape.qkv_offset(queries.b, queries.h);
    load_columns(team, q + queries.first * stride, stride, queries.count, shape.head_size, shape.scale(), s.queries,
                 queries.columns);
    tile_for(team, s.keys.stride, queries.columns, [&](int d, int c) { s.sums(d, c) = 0.0F; });
    row_for(team, queries.columns, [&](Index c) {
      s.maximum[c] = -Kokkos::Experimental::infinity_v<float>;
      s.total[c] = 0.0F;
    });
    for (Index key = 0; key < queries.first + queries.count; key += Tiles::keys)
      add_keys(team, s, queries, KeyTile(queries, key, shape.sequence), q + shape.channels());
    store(team, s, queries);
  }

  /// Corrects what is there for the new maximum, and adds what the tile's keys `k` and the values behind them give.
  KOKKOS_INLINE_FUNCTION void add_keys(Team const& team, Scratch const& s, QueryTile const& queries,
                                       KeyTile const& keys, T const* k) const {
    Index const stride = 3 * shape.channels(), columns = queries.columns - keys.seen;
    T const* const k_rows = k + keys.first * stride;
    load_rows(team, k_rows, stride, keys.count, shape.head_size, 1.0F, s.keys, keys.rows, s.keys.stride);
    team.team_barrier();
    multiply(team, keys.rows, columns, shape.head_size, RowsOf{s.keys.data, s.keys.stride},
             s.queries.from(0, keys.seen), s.scores.from(0, keys.seen), Write::overwrite);
    team.team_barrier();
    load_rows(team, k_rows + shape.channels(), stride, keys.count, shape.head_size, 1.0F, s.keys, keys.rows,
              s.keys.stride);
    exponentiate(team, s, queries, keys);
    tile_for(team, s.keys.stride, columns,
             [&](int d, int c) { s.sums(d, keys.seen + c) *= s.correction[keys.seen + c]; });
    team.team_barrier();
    multiply(team, s.keys.stride, columns, keys.count, ColumnsOf{s.keys.data, s.keys.stride},
             s.scores.from(0, keys.seen), s.sums.from(0, keys.seen), Write::add);
    team.team_barrier();
  }

  /// Turns scores into e^(score - maximum), dropped where they are, and brings maxima and totals up to date.
  KOKKOS_INLINE_FUNCTION void exponentiate(Team const& team, Scratch const& s, QueryTile const& queries,
                                           KeyTile const& keys) const {
    CausalMask const mask(queries, keys);
    int const seen = static_cast<int>(keys.seen);
    Index const columns = queries.columns - keys.seen;
    fold_columns(
        team, keys.rows, columns, -Kokkos::Experimental::infinity_v<float>,
        [&](float maximum, int row, int column) {
          int const c = seen + column;
          float const score = mask.sees(row, c) ? s.scores(row, c) : -Kokkos::Experimental::infinity_v<float>;
          s.scores(row, c) = score;
          return score > maximum ? score : maximum;
        },
        [&](int column, float maximum) {
          int const c = seen + column;
          float const next = maximum > s.maximum[c] ? maximum : s.maximum[c];
          s.correction[c] = exponential(s.maximum[c] - next);
          s.maximum[c] = next;
        });
    team.team_barrier();
    tile_for(team, keys.rows, columns, [&](int row, int column) {
      int const c = seen + column;
      s.scores(row, c) = exponential(s.scores(row, c) - s.maximum[c]);
    });
    team.team_barrier();
    fold_columns(
        team, keys.rows, columns, 0.0F,
        [&](float sum, int row, int column) { return sum + s.scores(row, seen + column); },
        [&](int column, float sum) {
          int const c = seen + column;
          s.total[c] = s.total[c] * s.correction[c] + sum;
        });
    if (!dropout.is_on) return;
    team.team_barrier();
    dropout.for_each(team, queries, keys, [&](int row, int c, float factor) { s.scores(row, c) *= factor; });
  }

  KOKKOS_INLINE_FUNCTION void store(Team const& team, Scratch const& s, QueryTile const& queries) const {
    T* const out_rows = out.data() + shape.out_offset(queries.b, queries.h) + queries.first * shape.channels();
    tile_for(team, queries.count, shape.head_size,
             [&](int c, int d) { out_rows[c * shape.channels() + d] = from_float<T>(s.sums(d, c) / s.total[c]); });
    float* const kept = log_sum_exp.data() + shape.query_offset(queries.b, queries.h) + queries.first;
    row_for(team, queries.count, [&](Index c) { kept[c] = s.maximum[c] + Kokkos::log(s.total[c]); });
  }
};

template <class T>
struct FlashBackward {
  AttentionShape shape;
  KeyDropout dropout;
  Matrix<T const> qkv;
  Vector<float const> log_sum_exp;
  Matrix<T const> out, d_out;
  Matrix<T> d_qkv;

  struct Scratch {
    Tile queries, d_out;                       ///< (queries, HS), the queries times the scale
    Tile transposed_queries, transposed_d_out; ///< (HS, queries)
    Tile keys, values;                         ///< (keys, HS)
    Tile probabilities, d_scores;              ///< transposed (keys, queries)
    Tile d_queries;                            ///< transposed (HS, queries)
    float* log_sum_exp;
    float* mean; ///< of the probabilities' gradient, weighted with the probabilities: d_out . out

    KOKKOS_INLINE_FUNCTION Scratch(ScratchPool& pool, Index head_size)
        : queries(pool.take(Tiles::queries, round_up(head_size, Tiles::patch_columns))),
          d_out(pool.take(Tiles::queries, queries.stride)),
          transposed_queries(pool.take(head_size, Tiles::queries)),
          transposed_d_out(pool.take(head_size, Tiles::queries)),
          keys(pool.take(Tiles::keys, round_up(head_size, Tiles::patch_rows))),
          values(pool.take(Tiles::keys, keys.stride)),
          probabilities(pool.take(Tiles::keys, Tiles::queries)),
          d_scores(pool.take(Tiles::keys, Tiles::queries)),
          d_queries(pool.take(keys.stride, Tiles::queries)),
          log_sum_exp(pool.take(Tiles::queries)),
          mean(pool.take(Tiles::queries)) {}
  };

  /// Sums over the tiles of queries for all keys of the head.
  struct Sums {
    Tile d_keys, d_values; ///< (T, HS)

    KOKKOS_INLINE_FUNCTION Sums(ScratchPool& pool, AttentionShape const& shape)
        : d_keys(
              pool.take(round_up(shape.sequence, Tiles::patch_rows), round_up(shape.head_size, Tiles::patch_columns))),
          d_values(pool.take(round_up(shape.sequence, Tiles::patch_rows), d_keys.stride)) {}
  };

  KOKKOS_INLINE_FUNCTION ScratchNeeds needs() const {
    ScratchPool tiles, rows;
    Scratch const scratch(tiles, shape.head_size);
    Sums const sums(rows, shape);
    return {tiles.bytes(), rows.bytes()};
  }

  KOKKOS_INLINE_FUNCTION void operator()(Team const& team) const {
    Index const b = team.league_rank() / shape.heads, h = team.league_rank() % shape.heads;
    ScratchPool tiles = needs().take_tiles(team), rows = needs().take_rows(team);
    Scratch const s(tiles, shape.head_size);
    Sums const sums(rows, shape);
    for (Index query = 0; query < shape.sequence; query += Tiles::queries) {
      QueryTile const queries(b, h, query, shape.sequence);
      load_queries(team, s, queries);
      for (Index key = 0; key < query + queries.count; key += Tiles::keys)
        add_keys(team, s, sums, queries, KeyTile(queries, key, shape.sequence));
      store_queries(team, s, queries);
      team.team_barrier();
    }
    store_keys_and_values(team, sums, b, h);
  }

  KOKKOS_INLINE_FUNCTION void load_queries(Team const& team, Scratch const& s, QueryTile const& queries) const {
    Index const channels = shape.channels(), size = shape.head_size, count = queries.count;
    T const* const q = qkv.data() + shape.qkv_offset(queries.b, queries.h) + queries.first * 3 * channels;
    Index const out_offset = shape.out_offset(queries.b, queries.h) + queries.first * channels;
    T const* const o = out.data() + out_offset;
    T const* const d_o = d_out.data() + out_offset;
    float const* const kept = log_sum_exp.data() + shape.query_offset(queries.b, queries.h) + queries.first;
    load_rows(team, q, 3 * channels, count, size, shape.scale(), s.queries, count, s.queries.stride);
    load_columns(team, q, 3 * channels, count, size, shape.scale(), s.transposed_queries, queries.columns);
    load_rows(team, d_o, channels, count, size, 1.0F, s.d_out, count, s.d_out.stride);
    load_columns(team, d_o, channels, count, size, 1.0F, s.transposed_d_out, queries.columns);
    tile_for(team, s.keys.stride, queries.columns, [&](int d, int c) { s.d_queries(d, c) = 0.0F; });
    team_for(team, queries.columns, [&](Index c) {
      bool const is_query = c < count;
      s.log_sum_exp[c] = is_query ? kept[c] : 0.0F;
      s.mean[c] = vector_sum(0, is_query ? size : 0,
                             [&](Index d) { return to_float(d_o[c * channels + d]) * to_float(o[c * channels + d]); });
    });
  }

  /// What one tile of keys adds to the queries' gradient, and the queries to theirs.
  KOKKOS_INLINE_FUNCTION void add_keys(Team const& team, Scratch const& s, Sums const& sums, QueryTile const& queries,
                                       KeyTile const& keys) const {
    Index const stride = 3 * shape.channels(), size = shape.head_size;
    Index const columns = queries.columns - keys.seen;
    T const* const k = qkv.data() + shape.qkv_offset(queries.b, queries.h) + shape.channels() + keys.first * stride;
    load_rows(team, k, stride, keys.count, size, 1.0F, s.keys, keys.rows, s.keys.stride);
    load_rows(team, k + shape.channels(), stride, keys.count, size, 1.0F, s.values, keys.rows, s.values.stride);
    team.team_barrier();
    multiply(team, keys.rows, columns, size, RowsOf{s.keys.data, s.keys.stride},
             s.transposed_queries.from(0, keys.seen), s.probabilities.from(0, keys.seen), Write::overwrite);
    multiply(team, keys.rows, columns, size, RowsOf{s.values.data, s.values.stride},
             s.transposed_d_out.from(0, keys.seen), s.d_scores.from(0, keys.seen), Write::overwrite);
    team.team_barrier();
    differentiate_softmax(team, s, queries, keys);
    team.team_barrier();
    // The tile of queries that contains a key is the first to see it.
    Write const mode = keys.first < queries.first ? Write::add : Write::overwrite;
    Index const seeing = queries.count - keys.seen;
    RowsOf const probabilities{s.probabilities.data + keys.seen, s.probabilities.stride};
    RowsOf const d_scores{s.d_scores.data + keys.seen, s.d_scores.stride};
    multiply(team, keys.rows, size, seeing, probabilities, s.d_out.from(keys.seen, 0),
             sums.d_values.from(keys.first, 0), mode);
    multiply(team, keys.rows, size, seeing, d_scores, s.queries.from(keys.seen, 0), sums.d_keys.from(keys.first, 0),
             mode);
    multiply(team, s.keys.stride, columns, keys.count, ColumnsOf{s.keys.data, s.keys.stride},
             s.d_scores.from(0, keys.seen), s.d_queries.from(0, keys.seen), Write::add);
    team.team_barrier();
  }

  /// Of scores and the gradient of dropped probabilities: dropped probabilities and the gradient of scores.
  KOKKOS_INLINE_FUNCTION void differentiate_softmax(Team const& team, Scratch const& s, QueryTile const& queries,
                                                    KeyTile const& keys) const {
    CausalMask const mask(queries, keys);
    dropout.for_each(team, queries, keys, [&](int row, int c, float factor) {
      float const p = mask.sees(row, c) ? exponential(s.probabilities(row, c) - s.log_sum_exp[c]) : 0.0F;
      s.d_scores(row, c) = p * (factor * s.d_scores(row, c) - s.mean[c]);
      s.probabilities(row, c) = p * factor;
    });
  }

  KOKKOS_INLINE_FUNCTION void store_queries(Team const& team, Scratch const& s, QueryTile const& queries) const {
    Index const stride = 3 * shape.channels();
    T* const d_q = d_qkv.data() + shape.qkv_offset(queries.b, queries.h) + queries.first * stride;
    float const scale = shape.scale();
    tile_for(team, queries.count, shape.head_size,
             [&](int c, int d) { d_q[c * stride + d] = from_float<T>(scale * s.d_queries(d, c)); });
  }

  KOKKOS_INLINE_FUNCTION void store_keys_and_values(Team const& team, Sums const& sums, Index b, Index h) const {
    Index const stride = 3 * shape.channels();
    T* const d_k = d_qkv.data() + shape.qkv_offset(b, h) + shape.channels();
    T* const d_v = d_k + shape.channels();
    tile_for(team, shape.sequence, shape.head_size, [&](int u, int d) {
      d_k[u * stride + d] = from_float<T>(sums.d_keys(u, d));
      d_v[u * stride + d] = from_float<T>(sums.d_values(u, d));
    });
  }
};

/// Checks the shapes that forward and backward share: qkv (B T, 3 C), out (B T, C), log_sum_exp (B NH T).
template <class Qkv, class Out, class LogSumExp>
AttentionShape flash_attention_shape(char const* where, Qkv const& qkv, Index batch, Index heads,
                                     LogSumExp const& log_sum_exp, Out const& out) {
  Index const rows = extent(out, 0), channels = extent(out, 1);
  TRAINSTONE_REQUIRE(batch > 0 ? rows % batch == 0 : rows == 0, "{}: {} rows do not divide into {} sequences", where,
                     rows, batch);
  AttentionShape const shape = attention_shape(where, batch, heads, batch > 0 ? rows / batch : 0, channels);
  require_shape(where, qkv, {rows, 3 * channels});
  require_shape(where, log_sum_exp, {rows * heads});
  return shape;
}

} // namespace Impl

template <class T>
void flash_attention_forward(ExecutionSpace const& exec, Matrix<T const> qkv, Index batch, Index heads,
                             Dropout const& dropout, Vector<float> log_sum_exp, Matrix<T> out) {
  Impl::AttentionShape const shape =
      Impl::flash_attention_shape("flash_attention_forward", qkv, batch, heads, log_sum_exp, out);
  Kernel const kernel{.label = "trainstone::flash_attention::forward",
                      .phase = Phase::attention,
                      .flops = flash_attention_forward_flops(batch, shape.sequence, heads, shape.head_size),
                      .bytes = 4 * out.size() * sizeof(T) + log_sum_exp.size() * sizeof(float)};
  Impl::FlashForward<T> const body{shape, Impl::KeyDropout(dropout, shape), qkv, log_sum_exp, out};
  Index const tiles = batch * heads * Impl::divide_up(shape.sequence, Impl::Tiles::queries);
  launch_for(kernel, body.needs().policy(exec, tiles), body);
}

template <class T>
void flash_attention_backward(ExecutionSpace const& exec, Matrix<T const> qkv, Index batch, Index heads,
                              Dropout const& dropout, Vector<float const> log_sum_exp, Matrix<T const> out,
                              Matrix<T const> d_out, Matrix<T> d_qkv) {
  Impl::AttentionShape const shape =
      Impl::flash_attention_shape("flash_attention_backward", qkv, batch, heads, log_sum_exp, out);
  Index const rows = batch * shape.sequence, channels = shape.channels();
  Impl::require_shape("flash_attention_backward: d_out", d_out, {rows, channels});
  Impl::require_shape("flash_attention_backward: d_qkv", d_qkv, {rows, 3 * channels});
  Kernel const kernel{.label = "trainstone::flash_attention::backward",
                      .phase = Phase::attention,
                      .flops = flash_attention_backward_flops(batch, shape.sequence, heads, shape.head_size),
                      .bytes = 8 * out.size() * sizeof(T) + log_sum_exp.size() * sizeof(float)};
  Impl::FlashBackward<T> const body{shape, Impl::KeyDropout(dropout, shape), qkv, log_sum_exp, out, d_out, d_qkv};
  launch_for(kernel, body.needs().policy(exec, batch * heads), body);
}

} // namespace trainstone
