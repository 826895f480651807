#pragma once

// The gradient of queries on tensor cores (attention_backward.hpp). A block computes 128 queries of a head, a warp 32
// of them; tiles of keys go by as in the forward pass.

#include "kernels/cuda/attention_backward.hpp"

namespace trainstone::Cuda {

template <int head_size>
struct QueryTiles {
  static constexpr int queries = 128, keys = 64, warps = 4, threads = 32 * warps, rows_of_warp = queries / warps;
  static constexpr int keys_at_once = head_size > 64 ? 16 : 32; ///< whose scores are in registers
  static constexpr int stages = 2;
  static constexpr int query_bytes = SharedTile<head_size>::bytes_of(queries);
};

template <class T, int head_size, class Mask, class Lane>
class AttentionQueries {
public:
  using Tiles = QueryTiles<head_size>;
  using Stages = KeyStages<Tiles, head_size>;
  static constexpr int shared_bytes = 2 * Tiles::query_bytes + Stages::bytes;
  using Arguments = BackwardArguments<Mask>;

  TRAINSTONE_LANE AttentionQueries(Arguments const& arguments, Lane& lane, std::byte* shared)
      : m_of(arguments),
        m_lane(lane),
        m_row(lane.thread() / 32 * Tiles::rows_of_warp),
        m_group(lane.thread() % 32 / 4),
        m_column(lane.thread() % 4 * 2),
        m_queries{shared},
        m_d_out{shared + Tiles::query_bytes},
        m_stages(shared + 2 * Tiles::query_bytes) {
    PlaceOfBlock const place(m_of.sizes, lane.block());
    m_b = place.b;
    m_h = place.h;
    m_first = ((m_of.sizes.sequence - 1) / Tiles::queries - place.tile) * Tiles::queries; // the longest first
  }

  TRAINSTONE_LANE void run() {
    int const end = m_first + Tiles::queries < m_of.sizes.sequence ? m_first + Tiles::queries : m_of.sizes.sequence;
    int const last = (end - 1) / Tiles::keys;
    bring<Tiles::threads, Tiles::queries>(m_lane, m_queries, m_of.rows(0, m_b, m_h, m_first));
    bring<Tiles::threads, Tiles::queries>(m_lane, m_d_out, m_of.d_out_rows(m_b, m_h, m_first));
    bring_keys(last);
    for (int tile = last; tile >= 0; --tile) {
      m_lane.template wait_copies<0>();
      m_lane.block_barrier(); // all lanes' copies are there, and nobody reads the other stage
      if (tile > 0) bring_keys(tile - 1);
      if (tile == last) look_at_queries();
      TRAINSTONE_UNROLLED
      for (int key = 0; key < Tiles::keys; key += Tiles::keys_at_once)
        if (tile * Tiles::keys + key <= m_first + m_row + Tiles::rows_of_warp - 1) see(tile, key);
    }
    finish();
  }

private:
  static constexpr int parts = Tiles::rows_of_warp / 16;
  static constexpr int steps = head_size / 16, pairs = Tiles::keys_at_once / 16;

  TRAINSTONE_LANE void bring_keys(int tile) { m_stages.bring(m_lane, m_of.sizes, m_of.qkv, m_b, m_h, tile); }

  /// The query of a row of this lane's fragments.
  TRAINSTONE_LANE int query(int part, int half) const { return m_first + m_row + part * 16 + m_group + 8 * half; }

  /// Numbers of each query: log_sum_exp in powers of 2, and the sum of d_out out, which others need, too.
  TRAINSTONE_LANE void look_at_queries() {
    TRAINSTONE_UNROLLED
    for (int part = 0; part < parts; ++part) {
      float sums[2] = {0, 0};
      TRAINSTONE_ROLLED
      for (int step = 0; step < steps; ++step) {
        FragmentA const d_out = load_a(m_lane, m_d_out, m_row + 16 * part, 16 * step);
        TRAINSTONE_UNROLLED
        for (int i = 0; i < 4; ++i) {
          int const t = query(part, i % 2);
          if (t >= m_of.sizes.sequence) continue;
          auto const out = *reinterpret_cast<std::uint32_t const*>(m_of.out + m_of.sizes.out_place(m_b, m_h, t) +
                                                                   2 * (16 * step + m_column + i / 2 * 8));
          sums[i % 2] += m_lane.template low<T>(out) * m_lane.template low<T>(d_out.r[i]) +
                         m_lane.template high<T>(out) * m_lane.template high<T>(d_out.r[i]);
        }
      }
      TRAINSTONE_UNROLLED
      for (int half = 0; half < 2; ++half) {
        float const sum = sum_of_row(m_lane, sums[half]);
        int const t = query(part, half);
        bool const is_there = t < m_of.sizes.sequence;
        std::int64_t const place = m_of.sizes.query_place(m_b, m_h, is_there ? t : 0);
        if (is_there && m_column == 0) m_of.sums[place] = sum;
        m_sums[part][half] = sum;
        m_logs[part][half] = is_there ? m_of.log_sum_exp[place] * log2_of_e : 0;
      }
    }
  }

  TRAINSTONE_LANE void see(int tile, int key) {
    FragmentC scores[parts][2 * pairs] = {}, d_weights[parts][2 * pairs] = {};
    add_row_products<T>(m_lane, m_queries, m_row, m_stages.keys(tile), key, scores);
    add_row_products<T>(m_lane, m_d_out, m_row, m_stages.values(tile), key, d_weights);
    differentiate(tile * Tiles::keys + key, scores, d_weights);
    add_weighted_rows<T>(m_lane, scores, m_stages.keys(tile), key, m_d_queries);
  }

  /// Scores become their gradients, without the scale.
  TRAINSTONE_LANE void differentiate(int first_key, FragmentC (&scores)[parts][2 * pairs],
                                     FragmentC const (&d_weights)[parts][2 * pairs]) {
    float const scale = m_of.sizes.scale * log2_of_e;
    TRAINSTONE_UNROLLED
    for (int part = 0; part < parts; ++part) {
      TRAINSTONE_UNROLLED
      for (int i = 0; i < 2 * pairs; ++i) {
        bool kept[4] = {true, true, true, true};
        if constexpr (Mask::drops) m_of.mask.kept(m_lane, m_b, m_h, query(part, 0), first_key + 8 * i, kept);
        TRAINSTONE_UNROLLED
        for (int j = 0; j < 4; ++j) {
          float const p = m_lane.power_of_2(scores[part][i].c[j] * scale - m_logs[part][j / 2]);
          float d_weight = d_weights[part][i].c[j];
          if constexpr (Mask::drops) d_weight = kept[j] ? d_weight * m_of.mask.scale : 0;
          bool const sees = first_key + 8 * i + m_column + j % 2 <= query(part, j / 2);
          scores[part][i].c[j] = sees ? p * (d_weight - m_sums[part][j / 2]) : 0;
        }
      }
    }
  }

  /// Writes the warp's rows by way of the memory of its queries.
  TRAINSTONE_LANE void finish() {
    m_lane.warp_barrier(); // no lane of the warp reads its queries any more
    put_rows<T>(m_lane, m_d_queries, m_of.sizes.scale, m_queries, m_row);
    m_lane.warp_barrier();
    write_rows<Tiles::rows_of_warp>(m_lane, m_queries, m_row, m_of.gradient(0, m_b, m_h, m_first),
                                    m_of.sizes.qkv_row_bytes(), m_of.sizes.sequence - m_first);
  }

  Arguments const& m_of;
  Lane& m_lane;
  int m_row, m_group, m_column; ///< the warp's first row of the tile; of this lane
  int m_b, m_h, m_first;        ///< head, and first query
  SharedTile<head_size> m_queries, m_d_out;
  Stages m_stages;
  FragmentC m_d_queries[parts][head_size / 8] = {};
  float m_logs[parts][2], m_sums[parts][2];
};

} // namespace trainstone::Cuda
