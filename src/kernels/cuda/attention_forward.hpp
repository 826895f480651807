#pragma once

// The forward pass of causal attention on tensor cores. A block computes 128 queries of a head, a warp 32 of them;
// tiles of keys go by from the diagonal to the first one, and the next tile comes while one is in work. Scores,
// weights and sums stay in registers. The same bits in every run. Source: FlashAttention-2: Faster Attention with
// Better Parallelism and Work Partitioning, arXiv:2307.08691.

#include "kernels/cuda/attention_rows.hpp"

namespace trainstone::Cuda {

/// Keys are so many that registers suffice.
template <int head_size, bool drops>
struct ForwardTiles {
  static constexpr int queries = 128, keys = head_size == 96 || (drops && head_size == 128) ? 32 : 64;
  static constexpr int warps = 4, threads = 32 * warps;
  static constexpr int rows_of_warp = queries / warps; ///< two fragments of 16
  static constexpr int stages = 2;
  static constexpr int query_bytes = SharedTile<head_size>::bytes_of(queries);
};

/// \tparam Mask  KeepsAll or KeyMask (key_mask.hpp)
template <class T, int head_size, class Mask, class Lane>
class AttentionForward {
public:
  using Tiles = ForwardTiles<head_size, Mask::drops>;
  using Stages = KeyStages<Tiles, head_size>;
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
        m_row(lane.thread() / 32 * Tiles::rows_of_warp),
        m_group(lane.thread() % 32 / 4),
        m_column(lane.thread() % 4 * 2),
        m_queries{shared},
        m_stages(shared + Tiles::query_bytes) {
    PlaceOfBlock const place(m_of.sizes, lane.block());
    m_b = place.b;
    m_h = place.h;
    m_first = ((m_of.sizes.sequence - 1) / Tiles::queries - place.tile) * Tiles::queries; // the longest first
  }

  TRAINSTONE_LANE void run() {
    int const end = m_first + Tiles::queries < m_of.sizes.sequence ? m_first + Tiles::queries : m_of.sizes.sequence;
    int const last = (end - 1) / Tiles::keys;
    bring<Tiles::threads, Tiles::queries>(m_lane, m_queries, qkv_rows(m_of.sizes, m_of.qkv, 0, m_b, m_h, m_first));
    bring_keys(last);
    for (int tile = last; tile >= 0; --tile) {
      m_lane.template wait_copies<0>();
      m_lane.block_barrier(); // all lanes' copies are there, and nobody reads the other stage
      if (tile > 0) bring_keys(tile - 1);
      if (tile * Tiles::keys <= m_first + m_row + Tiles::rows_of_warp - 1) see(tile);
    }
    finish();
  }

private:
  static constexpr int parts = Tiles::rows_of_warp / 16; ///< fragments of a warp's rows
  static constexpr int pairs = Tiles::keys / 16;

  TRAINSTONE_LANE void bring_keys(int tile) { m_stages.bring(m_lane, m_of.sizes, m_of.qkv, m_b, m_h, tile); }

  /// The query of a row of this lane's fragments.
  TRAINSTONE_LANE int query(int part, int half) const { return m_first + m_row + part * 16 + m_group + 8 * half; }

  TRAINSTONE_LANE void see(int tile) {
    FragmentC scores[parts][2 * pairs] = {};
    add_row_products<T>(m_lane, m_queries, m_row, m_stages.keys(tile), 0, scores);
    int const first_key = tile * Tiles::keys;
    if (first_key + Tiles::keys > m_first + m_row) hide(first_key, scores);
    weigh(scores);
    if constexpr (Mask::drops) drop(first_key, scores);
    add_weighted_rows<T>(m_lane, scores, m_stages.values(tile), 0, m_out);
  }

  /// Scores of keys behind the query.
  TRAINSTONE_LANE void hide(int first_key, FragmentC (&scores)[parts][2 * pairs]) {
    TRAINSTONE_UNROLLED
    for (int part = 0; part < parts; ++part) {
      TRAINSTONE_UNROLLED
      for (int i = 0; i < 2 * pairs; ++i) {
        TRAINSTONE_UNROLLED
        for (int j = 0; j < 4; ++j)
          if (first_key + 8 * i + m_column + j % 2 > query(part, j / 2)) scores[part][i].c[j] = -infinity;
      }
    }
  }

  /// Scores become weights, relative to the largest score so far; sums so far are corrected.
  TRAINSTONE_LANE void weigh(FragmentC (&scores)[parts][2 * pairs]) {
    TRAINSTONE_UNROLLED
    for (int part = 0; part < parts; ++part) {
      TRAINSTONE_UNROLLED
      for (int half = 0; half < 2; ++half) weigh(part, half, scores[part]);
    }
  }

  /// Of one row of this lane.
  TRAINSTONE_LANE void weigh(int part, int half, FragmentC (&scores)[2 * pairs]) {
    float const scale = m_of.sizes.scale * log2_of_e;
    float most = m_most[part][half];
    TRAINSTONE_UNROLLED
    for (int i = 0; i < 2 * pairs; ++i) most = larger(most, larger(scores[i].c[2 * half], scores[i].c[2 * half + 1]));
    most = larger(most, m_lane.from_lane_beside(most, 1));
    most = larger(most, m_lane.from_lane_beside(most, 2));
    float const correction = m_lane.power_of_2((m_most[part][half] - most) * scale), shift = most * scale;
    m_most[part][half] = most;
    float sum = 0;
    TRAINSTONE_UNROLLED
    for (int i = 0; i < 2 * pairs; ++i) {
      TRAINSTONE_UNROLLED
      for (int j = 2 * half; j < 2 * half + 2; ++j) {
        float const weight = m_lane.power_of_2(scores[i].c[j] * scale - shift);
        scores[i].c[j] = weight;
        sum += weight;
      }
    }
    m_sum[part][half] = m_sum[part][half] * correction + sum; // of this lane's columns
    multiply_row(part, half, correction);
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
          m_of.log_sum_exp[m_of.sizes.query_place(m_b, m_h, t)] =
              m_most[part][half] * m_of.sizes.scale + m_lane.log2(sum) * log_of_2;
      }
    }
    m_lane.warp_barrier(); // no lane of the warp reads its queries any more
    put_rows<T>(m_lane, m_out, 1.0F, m_queries, m_row);
    m_lane.warp_barrier();
    write_rows<Tiles::rows_of_warp>(m_lane, m_queries, m_row, m_of.out + m_of.sizes.out_place(m_b, m_h, m_first),
                                    m_of.sizes.out_row_bytes(), m_of.sizes.sequence - m_first);
  }

  Arguments const& m_of;
  Lane& m_lane;
  int m_row, m_group, m_column; ///< the warp's first row of the tile; of this lane
  int m_b, m_h, m_first;        ///< head, and first query
  SharedTile<head_size> m_queries;
  Stages m_stages;
  FragmentC m_out[parts][head_size / 8] = {};
  float m_most[parts][2] = {{-infinity, -infinity}, {-infinity, -infinity}}, m_sum[parts][2] = {};
};

} // namespace trainstone::Cuda
