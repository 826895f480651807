#pragma once

// The forward pass of causal attention on tensor cores. A block computes 128 queries of a head, a warp 32 of them;
// tiles of 64 keys go by from the diagonal to the first one, and the next tile comes while one is in work. Scores,
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
  static constexpr int query_bytes = SharedTile<head_size>::bytes_of(queries),
                       key_bytes = SharedTile<head_size>::bytes_of(keys);
  static constexpr int shared_bytes = query_bytes + 2 * stages * key_bytes;
};

/// \tparam Mask  with `drops`; if it does, also `scale` and kept(lane, b, h, query, key, bool (&)[4]) (below)
template <class T, int head_size, class Mask, class Lane>
class AttentionForward {
public:
  using Tiles = ForwardTiles<head_size, Mask::drops>;

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
        m_warp(lane.thread() / 32),
        m_group(lane.thread() % 32 / 4),
        m_column(lane.thread() % 4 * 2),
        m_queries{shared} {
    int const heads = m_of.sizes.batch * m_of.sizes.heads;
    int const tiles = (m_of.sizes.sequence + Tiles::queries - 1) / Tiles::queries;
    int const head = lane.block() % heads, tile = tiles - 1 - lane.block() / heads; // the longest first
    m_b = head / m_of.sizes.heads;
    m_h = head % m_of.sizes.heads;
    m_first = tile * Tiles::queries;
    m_tiles = shared + Tiles::query_bytes;
  }

  TRAINSTONE_LANE void run() {
    int const end = m_first + Tiles::queries < m_of.sizes.sequence ? m_first + Tiles::queries : m_of.sizes.sequence;
    int const last = (end - 1) / Tiles::keys;
    bring<Tiles::threads, Tiles::queries>(m_lane, m_queries, rows(0, m_first));
    bring_keys(last);
    for (int tile = last; tile >= 0; --tile) {
      m_lane.template wait_copies<0>();
      m_lane.block_barrier(); // all lanes' copies are there, and nobody reads the other stage
      if (tile > 0) bring_keys(tile - 1);
      if (tile * Tiles::keys <= m_first + (m_warp + 1) * Tiles::rows_of_warp - 1) see(tile);
    }
    finish();
  }

private:
  static constexpr int parts = Tiles::rows_of_warp / 16; ///< fragments of a warp's rows
  static constexpr int pairs = Tiles::keys / 16;

  /// q, k or v from row `first` on.
  TRAINSTONE_LANE GlobalRows rows(int which, int first) const {
    return {m_of.qkv + m_of.sizes.qkv_place(m_b, m_h, first) + which * 2 * m_of.sizes.channels(),
            m_of.sizes.qkv_row_bytes(), m_of.sizes.sequence - first};
  }

  TRAINSTONE_LANE SharedTile<head_size> keys(int stage) const { return {m_tiles + 2 * stage * Tiles::key_bytes}; }
  TRAINSTONE_LANE SharedTile<head_size> values(int stage) const {
    return {m_tiles + (2 * stage + 1) * Tiles::key_bytes};
  }

  TRAINSTONE_LANE void bring_keys(int tile) {
    int const stage = tile % Tiles::stages;
    bring<Tiles::threads, Tiles::keys>(m_lane, keys(stage), rows(1, tile * Tiles::keys));
    bring<Tiles::threads, Tiles::keys>(m_lane, values(stage), rows(2, tile * Tiles::keys));
    m_lane.end_copies();
  }

  /// The query of a row of this lane's fragments.
  TRAINSTONE_LANE int query(int part, int half) const {
    return m_first + m_warp * Tiles::rows_of_warp + part * 16 + m_group + 8 * half;
  }

  TRAINSTONE_LANE void see(int tile) {
    FragmentC scores[parts][2 * pairs] = {};
    int const stage = tile % Tiles::stages;
    add_row_products<T>(m_lane, m_queries, m_warp * Tiles::rows_of_warp, keys(stage), 0, scores);
    int const first_key = tile * Tiles::keys;
    if (first_key + Tiles::keys > m_first + m_warp * Tiles::rows_of_warp) hide(first_key, scores);
    weigh(scores);
    if constexpr (Mask::drops) drop(first_key, scores);
    add_weighted_rows<T>(m_lane, scores, values(stage), 0, m_out);
  }

  /// Scores of keys behind the query.
  TRAINSTONE_LANE void hide(int first_key, FragmentC (&scores)[parts][2 * pairs]) {
    TRAINSTONE_UNROLLED
    for (int part = 0; part < parts; ++part) TRAINSTONE_UNROLLED
    for (int i = 0; i < 2 * pairs; ++i) TRAINSTONE_UNROLLED
    for (int j = 0; j < 4; ++j)
      if (first_key + 8 * i + m_column + j % 2 > query(part, j / 2)) scores[part][i].c[j] = -infinity;
  }

  /// Scores become weights, relative to the largest score so far; sums so far are corrected.
  TRAINSTONE_LANE void weigh(FragmentC (&scores)[parts][2 * pairs]) {
    float const scale = m_of.sizes.scale * log2_of_e;
    TRAINSTONE_UNROLLED
    for (int part = 0; part < parts; ++part) TRAINSTONE_UNROLLED
    for (int half = 0; half < 2; ++half) {
      float most = m_most[part][half];
      TRAINSTONE_UNROLLED
      for (int i = 0; i < 2 * pairs; ++i)
        most = larger(most, larger(scores[part][i].c[2 * half], scores[part][i].c[2 * half + 1]));
      most = larger(most, m_lane.from_lane_beside(most, 1));
      most = larger(most, m_lane.from_lane_beside(most, 2));
      float const correction = m_lane.power_of_2((m_most[part][half] - most) * scale), shift = most * scale;
      m_most[part][half] = most;
      float sum = 0;
      TRAINSTONE_UNROLLED
      for (int i = 0; i < 2 * pairs; ++i) TRAINSTONE_UNROLLED
      for (int j = 2 * half; j < 2 * half + 2; ++j) {
        float const weight = m_lane.power_of_2(scores[part][i].c[j] * scale - shift);
        scores[part][i].c[j] = weight;
        sum += weight;
      }
      m_sum[part][half] = m_sum[part][half] * correction + sum; // of this lane's columns
      TRAINSTONE_UNROLLED
      for (int i = 0; i < head_size / 8; ++i) {
        m_out[part][i].c[2 * half] *= correction;
        m_out[part][i].c[2 * half + 1] *= correction;
      }
    }
  }

  TRAINSTONE_LANE void drop(int first_key, FragmentC (&weights)[parts][2 * pairs]) {
    TRAINSTONE_UNROLLED
    for (int part = 0; part < parts; ++part) TRAINSTONE_UNROLLED
    for (int i = 0; i < 2 * pairs; ++i) {
      bool kept[4];
      m_of.mask.kept(m_lane, m_b, m_h, query(part, 0), first_key + 8 * i, kept);
      TRAINSTONE_UNROLLED
      for (int j = 0; j < 4; ++j)
        if (!kept[j]) weights[part][i].c[j] = 0;
    }
  }

  /// Divides by the sums, and writes the warp's rows by way of the memory of its queries.
  TRAINSTONE_LANE void finish() {
    constexpr int first_row_step = Tiles::rows_of_warp;
    int const warp_row = m_warp * first_row_step;
    m_lane.warp_barrier(); // no lane of the warp reads its queries any more
    TRAINSTONE_UNROLLED
    for (int part = 0; part < parts; ++part) TRAINSTONE_UNROLLED
    for (int half = 0; half < 2; ++half) {
      float sum = m_sum[part][half];
      sum += m_lane.from_lane_beside(sum, 1);
      sum += m_lane.from_lane_beside(sum, 2);
      float factor = 1.0F / sum;
      if constexpr (Mask::drops) factor *= m_of.mask.scale;
      int const row = warp_row + 16 * part + m_group + 8 * half, t = m_first + row;
      TRAINSTONE_UNROLLED
      for (int i = 0; i < head_size / 8; ++i)
        *reinterpret_cast<std::uint32_t*>(m_queries.at(row, 8 * i + m_column)) =
            m_lane.template pack<T>(m_out[part][i].c[2 * half] * factor, m_out[part][i].c[2 * half + 1] * factor);
      if (m_column == 0 && t < m_of.sizes.sequence)
        m_of.log_sum_exp[m_of.sizes.query_place(m_b, m_h, t)] =
            m_most[part][half] * m_of.sizes.scale + m_lane.log2(sum) * log_of_2;
    }
    m_lane.warp_barrier();
    write_rows<Tiles::rows_of_warp>(m_lane, m_queries, warp_row, m_of.out + m_of.sizes.out_place(m_b, m_h, m_first),
                                    m_of.sizes.out_row_bytes(), m_of.sizes.sequence - m_first);
  }

  Arguments const& m_of;
  Lane& m_lane;
  int m_warp, m_group, m_column;
  int m_b, m_h, m_first; ///< head, and first query
  SharedTile<head_size> m_queries;
  std::byte* m_tiles; ///< of keys and of values, stage by stage
  FragmentC m_out[parts][head_size / 8] = {};
  float m_most[parts][2] = {{-infinity, -infinity}, {-infinity, -infinity}}, m_sum[parts][2] = {};
};

} // namespace trainstone::Cuda
