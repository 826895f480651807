#pragma once

// The body of flash_attention_backward. Where kernels run on few threads a team computes a whole head: d_k and d_v
// collect the tiles of queries in order, so that no two teams add to one row. Devices want more teams than that: one
// per tile of queries collects their d_q, one per tile of keys their d_k and d_v, each in the same order and so with
// the same bits; both compute the scores and their gradients, seven products instead of five. Scores lie transposed in
// the scratch, as they do forward. All that is in the scratch is fp32.

#include "kernels/attention/flash_tiles.hpp"
#include "kernels/common/attention_shape.hpp"
#include "kernels/common/math.hpp"
#include "kernels/gemm/tile_scratch.hpp"

namespace trainstone::Impl {

/// What a team gives: the gradients of these queries, or of these keys and values, or both.
struct FlashPart {
  Index b, h;
  Index first_query, end_query; ///< those that it goes through; multiples of a tile, but for the sequence's end
  Index first_key, end_key;
  bool gives_queries, gives_keys;
};

template <class T>
struct FlashBackward {
  AttentionShape shape;
  bool by_tiles; ///< a team per tile instead of one per head
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

  /// Sums over the tiles of queries for the team's keys.
  struct Sums {
    Tile d_keys, d_values; ///< (keys, HS)

    KOKKOS_INLINE_FUNCTION Sums(ScratchPool& pool, Index keys, Index head_size)
        : d_keys(pool.take(round_up(keys, Tiles::patch_rows), round_up(head_size, Tiles::patch_columns))),
          d_values(pool.take(round_up(keys, Tiles::patch_rows), d_keys.stride)) {}
  };

  KOKKOS_INLINE_FUNCTION Sums take_sums(ScratchPool& pool) const {
    return Sums(pool, by_tiles ? Tiles::queries : shape.sequence, shape.head_size);
  }

  KOKKOS_INLINE_FUNCTION ScratchNeeds needs() const {
    ScratchPool tiles, rows;
    Scratch const scratch(tiles, shape.head_size);
    static_cast<void>(take_sums(rows));
    return {tiles.bytes(), rows.bytes()};
  }

  KOKKOS_INLINE_FUNCTION Index heads() const { return shape.batch * shape.heads; }
  Index teams() const { return heads() * (by_tiles ? 2 * divide_up(shape.sequence, Tiles::queries) : 1); }

  /// Devices start teams in order: those of the first keys and of the last queries, which have most to do, come first.
  KOKKOS_INLINE_FUNCTION FlashPart part_of(Index team) const {
    Index const head = team % heads(), turn = team / heads(), sequence = shape.sequence;
    FlashPart part{head / shape.heads, head % shape.heads, 0, sequence, 0, sequence, true, true};
    if (!by_tiles) return part;
    part.gives_keys = turn % 2 == 0;
    part.gives_queries = !part.gives_keys;
    Index const before = turn / 2, after = divide_up(sequence, Tiles::queries) - 1 - before;
    part.first_query = (part.gives_keys ? before : after) * Tiles::queries;
    Index const end = minimum(part.first_query + Tiles::queries, sequence);
    if (part.gives_keys) part.first_key = part.first_query;
    if (part.gives_queries) part.end_query = end;
    part.end_key = end;
    return part;
  }

  KOKKOS_INLINE_FUNCTION void operator()(Team const& team) const {
    FlashPart const part = part_of(team.league_rank());
    ScratchPool tiles = needs().take_tiles(team), rows = needs().take_rows(team);
    Scratch const s(tiles, shape.head_size);
    Sums const sums = take_sums(rows);
    for (Index query = part.first_query; query < part.end_query; query += Tiles::queries) {
      QueryTile const queries(part.b, part.h, query, shape.sequence);
      load_queries(team, s, part, queries);
      for (Index key = part.first_key; key < minimum(query + queries.count, part.end_key); key += Tiles::keys)
        add_keys(team, s, sums, part, queries, KeyTile(queries, key, shape.sequence));
      if (part.gives_queries) store_queries(team, s, queries);
      team.team_barrier();
    }
    if (part.gives_keys) store_keys_and_values(team, sums, part);
  }

  KOKKOS_INLINE_FUNCTION void load_queries(Team const& team, Scratch const& s, FlashPart const& part,
                                           QueryTile const& queries) const {
    Index const channels = shape.channels(), size = shape.head_size, count = queries.count;
    T const* const q = qkv.data() + shape.qkv_offset(queries.b, queries.h) + queries.first * 3 * channels;
    Index const out_offset = shape.out_offset(queries.b, queries.h) + queries.first * channels;
    T const* const o = out.data() + out_offset;
    T const* const d_o = d_out.data() + out_offset;
    float const* const kept = log_sum_exp.data() + shape.query_offset(queries.b, queries.h) + queries.first;
    if (part.gives_keys) {
      load_rows(team, q, 3 * channels, count, size, shape.scale(), s.queries, count, s.queries.stride);
      load_rows(team, d_o, channels, count, size, 1.0F, s.d_out, count, s.d_out.stride);
    }
    load_columns(team, q, 3 * channels, count, size, shape.scale(), s.transposed_queries, queries.columns);
    load_columns(team, d_o, channels, count, size, 1.0F, s.transposed_d_out, queries.columns);
    if (part.gives_queries)
      tile_for(team, s.keys.stride, queries.columns, [&](int d, int c) { s.d_queries(d, c) = 0.0F; });
    team_for(team, queries.columns, [&](Index c) {
      bool const is_query = c < count;
      s.log_sum_exp[c] = is_query ? kept[c] : 0.0F;
      s.mean[c] = vector_sum(0, is_query ? size : 0,
                             [&](Index d) { return to_float(d_o[c * channels + d]) * to_float(o[c * channels + d]); });
    });
  }

  /// What one tile of keys adds to the queries' gradient, and the queries to theirs: to those that the team gives.
  KOKKOS_INLINE_FUNCTION void add_keys(Team const& team, Scratch const& s, Sums const& sums, FlashPart const& part,
                                       QueryTile const& queries, KeyTile const& keys) const {
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
    if (part.gives_keys) add_to_keys(team, s, sums, part, queries, keys);
    if (part.gives_queries)
      multiply(team, s.keys.stride, columns, keys.count, ColumnsOf{s.keys.data, s.keys.stride},
               s.d_scores.from(0, keys.seen), s.d_queries.from(0, keys.seen), Write::add);
    team.team_barrier();
  }

  KOKKOS_INLINE_FUNCTION void add_to_keys(Team const& team, Scratch const& s, Sums const& sums, FlashPart const& part,
                                          QueryTile const& queries, KeyTile const& keys) const {
    // The tile of queries that contains a key is the first to see it.
    Write const mode = keys.first < queries.first ? Write::add : Write::overwrite;
    Index const seeing = queries.count - keys.seen, row = keys.first - part.first_key;
    RowsOf const probabilities{s.probabilities.data + keys.seen, s.probabilities.stride};
    RowsOf const d_scores{s.d_scores.data + keys.seen, s.d_scores.stride};
    multiply(team, keys.rows, shape.head_size, seeing, probabilities, s.d_out.from(keys.seen, 0),
             sums.d_values.from(row, 0), mode);
    multiply(team, keys.rows, shape.head_size, seeing, d_scores, s.queries.from(keys.seen, 0), sums.d_keys.from(row, 0),
             mode);
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

  KOKKOS_INLINE_FUNCTION void store_keys_and_values(Team const& team, Sums const& sums, FlashPart const& part) const {
    Index const stride = 3 * shape.channels();
    T* const d_k = d_qkv.data() + shape.qkv_offset(part.b, part.h) + shape.channels() + part.first_key * stride;
    T* const d_v = d_k + shape.channels();
    tile_for(team, part.end_key - part.first_key, shape.head_size, [&](int u, int d) {
      d_k[u * stride + d] = from_float<T>(sums.d_keys(u, d));
      d_v[u * stride + d] = from_float<T>(sums.d_values(u, d));
    });
  }
};

} // namespace trainstone::Impl
