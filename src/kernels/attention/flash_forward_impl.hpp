#pragma once

// The body of flash_attention_forward: a team computes a tile of queries. Scores lie transposed in the scratch, a
// column per query: maxima and sums over keys are vector code then, and only queries and results are ever transposed,
// once per tile. All that is in the scratch is fp32.

#include "kernels/attention/flash_tiles.hpp"
#include "kernels/common/attention_shape.hpp"
#include "kernels/common/math.hpp"
#include "kernels/gemm/tile_scratch.hpp"

namespace trainstone::Impl {

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
    Index const tiles = divide_up(shape.sequence, Tiles::queries), heads = shape.batch * shape.heads;
    Index const rank = team.league_rank();
    // Devices start teams in order: those with most keys come first.
    Index const head = host_reaches_memory ? rank / tiles : rank % heads;
    Index const tile = host_reaches_memory ? rank % tiles : tiles - 1 - rank / heads;
    QueryTile const queries(head / shape.heads, head % shape.heads, tile * Tiles::queries, shape.sequence);
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

} // namespace trainstone::Impl
