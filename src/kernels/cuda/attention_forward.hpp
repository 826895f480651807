#pragma once

// The forward pass of causal attention on tensor cores. A block computes some queries of a head, and a warp its share
// of them. Tiles says how many. Tiles of keys go by from the diagonal to the first one. The next tile comes while one
// is in work. Scores, weights and sums stay in registers. The same bits in every run. Source: FlashAttention-2: Faster
// Attention with Better Parallelism and Work Partitioning, arXiv:2307.08691.

#include "kernels/cuda/attention_rows.hpp"

namespace trainstone::Cuda {

/// Keys are so many that registers suffice.
template <int head_size, bool drops>
struct ForwardTiles {
  static constexpr int queries = 128, keys = head_size == 96 || (drops && head_size == 128) ? 32 : 64;
  static constexpr int keys_at_once = drops && head_size == 80 ? 32 : keys; ///< whose scores are in registers
  static constexpr int warps = 4, threads = 32 * warps;
  static constexpr int rows_of_warp = queries / warps; ///< two fragments of 16
  static constexpr int rows_together = rows_of_warp;   ///< of the lanes that multiply together
  static constexpr int stages = 2;
  static constexpr int blocks = 2; ///< that share a multiprocessor
  using QueryTile = SharedTile<head_size>;
  using KeyTile = SharedTile<head_size>;
  static constexpr int query_bytes = QueryTile::bytes_of(queries), tile_bytes = KeyTile::bytes_of(keys);
};

/// \tparam Mask  KeepsAll or KeyMask (key_mask.hpp)
template <class T, int head_size, class Mask, class Lane, class TilesOfBlock = ForwardTiles<head_size, Mask::drops>>
class AttentionForward {
public:
  using Tiles = TilesOfBlock;
  using LaneOfBlock = Lane;
  using Stages = KeyStages<Tiles>;
  static constexpr int shared_bytes = Tiles::query_bytes + Stages::bytes;

  struct Arguments {
    AttentionSizes sizes;
    std::byte const* qkv;
    std::byte* out;
    float* log_sum_exp;
    Mask mask;
  };

  TRAINSTONE_LANE AttentionForward(Arguments const& arguments, Lane& lane, std::byte* shared)
      : m_of(arguments),
        m_lane(lane),
        m_row(lane.warp() * Tiles::rows_of_warp),
        m_group(lane.thread() % 32 / 4),
        m_column(lane.thread() % 4 * 2),
        m_queries{shared},
        m_stages(shared + Tiles::query_bytes) {
    PlaceOfBlock const place(m_of.sizes, lane.block());
    m_b = place.b;
    m_h = place.h;
    m_first = ((m_of.sizes.sequence - 1) / Tiles::queries - place.tile) * Tiles::queries; // the longest first
    TRAINSTONE_UNROLLED
    for (int part = 0; part < parts; ++part) m_shift[part][0] = m_shift[part][1] = -infinity;
  }

  TRAINSTONE_LANE void run() {
    int const end = m_first + Tiles::queries < m_of.sizes.sequence ? m_first + Tiles::queries : m_of.sizes.sequence;
    int const last = (end - 1) / Tiles::keys;
    GlobalRows const keys = rows(1), values = rows(2);
    bring<Tiles::threads, Tiles::queries>(m_lane, m_queries, rows(0).from(m_first));
    m_stages.bring_both(m_lane, keys, values, last);
    for (int tile = last; tile >= 0; --tile) {
      await_copies(m_lane); // nobody reads the other stage any more
      if (tile > 0) m_stages.bring_both(m_lane, keys, values, tile - 1);
      TRAINSTONE_UNROLLED
      for (int key = 0; key < Tiles::keys; key += Tiles::keys_at_once)
        if (tile * Tiles::keys + key <= m_first + last_together<Tiles>(m_row)) see(tile, key);
    }
    finish();
  }

private:
  static constexpr int parts = Tiles::rows_of_warp / 16; ///< fragments of a warp's rows
  static constexpr int pairs = Tiles::keys_at_once / 16;
  static_assert(Tiles::keys_at_once % Tiles::rows_of_warp == 0 || Tiles::rows_of_warp % Tiles::keys_at_once == 0);

  TRAINSTONE_LANE GlobalRows rows(int which) const { return qkv_rows(m_of.sizes, m_of.qkv, which, m_b, m_h); }

  /// The query of a row of this lane's fragments.
  TRAINSTONE_LANE int query(int part, int half) const { return m_first + m_row + part * 16 + m_group + 8 * half; }

  TRAINSTONE_LANE void see(int tile, int key) {
    FragmentC scores[parts][2 * pairs];
    set_row_products<T>(m_lane, m_queries, m_row, m_stages.keys(tile), key, scores);
    m_lane.await_products(scores);
    int const first_key = tile * Tiles::keys + key;
    if (first_key + Tiles::keys_at_once > m_first + m_row) hide<false>(scores, first_key + m_column, query(0, 0));
    shift_up(scores);
    weigh(scores);
    if constexpr (Mask::drops) drop(first_key, scores);
    add_weighted_rows<T>(m_lane, scores, m_stages.values(tile), key, m_out);
    m_lane.await_products(m_out);
  }

  /// Weights are powers of 2 relative to a shift, which all lanes of a row have. It follows the largest score when a
  /// weight would be beyond 2^8. Then what is summed so far is corrected. Most tiles need no correction.
  TRAINSTONE_LANE void shift_up(FragmentC const (&scores)[parts][2 * pairs]) {
    constexpr float most_powers = 8;
    float const scale = m_of.sizes.scale * log2_of_e;
    float most[parts][2]; // of this lane's columns
    bool is_beyond = false;
    TRAINSTONE_UNROLLED
    for (int part = 0; part < parts; ++part) {
      TRAINSTONE_UNROLLED
      for (int half = 0; half < 2; ++half) {
        float score = scores[part][0].c[2 * half];
        TRAINSTONE_UNROLLED
        for (int i = 0; i < 2 * pairs; ++i)
          score = larger(score, larger(scores[part][i].c[2 * half], scores[part][i].c[2 * half + 1]));
        most[part][half] = score * scale;
        is_beyond = is_beyond || most[part][half] > m_shift[part][half] + most_powers;
      }
    }
    if (!m_lane.any(is_beyond)) return;
    TRAINSTONE_UNROLLED
    for (int part = 0; part < parts; ++part) {
      TRAINSTONE_UNROLLED
      for (int half = 0; half < 2; ++half) shift_up(part, half, most[part][half]);
    }
  }

  TRAINSTONE_LANE void shift_up(int part, int half, float shift) {
    shift = larger(shift, m_lane.from_lane_beside(shift, 1));
    shift = larger(shift, m_lane.from_lane_beside(shift, 2));
    shift = larger(shift, m_shift[part][half]);
    float const correction = m_lane.power_of_2(m_shift[part][half] - shift);
    m_shift[part][half] = shift;
    m_sum[part][half] *= correction;
    multiply_row(part, half, correction);
  }

  /// Scores become weights.
  TRAINSTONE_LANE void weigh(FragmentC (&scores)[parts][2 * pairs]) {
    float const scale = m_of.sizes.scale * log2_of_e;
    TRAINSTONE_UNROLLED
    for (int i = 0; i < 2 * pairs; ++i) {
      TRAINSTONE_UNROLLED
      for (int part = 0; part < parts; ++part) {
        TRAINSTONE_UNROLLED
        for (int j = 0; j < 4; ++j) {
          float const weight = m_lane.power_of_2(scores[part][i].c[j] * scale - m_shift[part][j / 2]);
          scores[part][i].c[j] = weight;
          m_sum[part][j / 2] += weight; // of this lane's columns
        }
      }
    }
  }

  TRAINSTONE_LANE void multiply_row(int part, int half, float factor) {
    TRAINSTONE_UNROLLED
    for (int i = 0; i < head_size / 8; ++i) {
      m_out[part][i].c[2 * half] *= factor;
      m_out[part][i].c[2 * half + 1] *= factor;
    }
  }

  TRAINSTONE_LANE void drop(int first_key, FragmentC (&weights)[parts][2 * pairs]) {
    TRAINSTONE_UNROLLED
    for (int part = 0; part < parts; ++part) {
      TRAINSTONE_UNROLLED
      for (int i = 0; i < 2 * pairs; ++i) {
        bool kept[4];
        m_of.mask.kept(m_lane, m_b, m_h, query(part, 0), first_key + 8 * i, kept);
        TRAINSTONE_UNROLLED
        for (int j = 0; j < 4; ++j)
          if (!kept[j]) weights[part][i].c[j] = 0;
      }
    }
  }

  /// Divides by the sums, and writes the warp's rows by way of the memory of its queries.
  TRAINSTONE_LANE void finish() {
    TRAINSTONE_UNROLLED
    for (int part = 0; part < parts; ++part) {
      TRAINSTONE_UNROLLED
      for (int half = 0; half < 2; ++half) {
        float const sum = sum_of_row(m_lane, m_sum[part][half]);
        float factor = 1.0F / sum;
        if constexpr (Mask::drops) factor *= m_of.mask.scale;
        multiply_row(part, half, factor);
        if (int const t = query(part, half); m_column == 0 && t < m_of.sizes.sequence)
          m_of.log_sum_exp[m_of.sizes.query_place(m_b, m_h, t)] = (m_shift[part][half] + m_lane.log2(sum)) * log_of_2;
      }
    }
    m_lane.group_barrier(); // nobody reads these rows of queries any more
    put_rows<T>(m_lane, m_out, 1.0F, m_queries, m_row);
    m_lane.warp_barrier();
    write_rows<Tiles::rows_of_warp>(m_lane, m_queries, m_row, m_of.out + m_of.sizes.out_place(m_b, m_h, m_first),
                                    m_of.sizes.out_row_bytes(), m_of.sizes.sequence - m_first);
  }

  Arguments const& m_of;
  Lane& m_lane;
  int m_row, m_group, m_column; ///< the warp's first row of the tile; of this lane
  int m_b, m_h, m_first;        ///< head, and first query
  typename Tiles::QueryTile m_queries;
  Stages m_stages;
  FragmentC m_out[parts][head_size / 8] = {};
  float m_shift[parts][2], m_sum[parts][2] = {}; ///< in powers of 2
};

} // namespace trainstone::Cuda
