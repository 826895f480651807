#pragma once

// The body of flash_attention_backward: a team computes a whole head, in which d_k and d_v collect the tiles in order, so
// that no two teams add to one row. Scores lie transposed in the scratch, as they do forward. All that is in the scratch
// is fp32.

#include "kernels/attention_shape.hpp"
#include "kernels/flash_tiles.hpp"
#include "kernels/math.hpp"
#include "kernels/tile_scratch.hpp"

namespace trainstone::Impl {

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

} // namespace trainstone::Impl
