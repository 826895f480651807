#pragma once

// The gradient of queries on tensor cores (attention_backward.hpp). A block computes some queries of a head, and a warp
// its share of them. Tiles says how many. Tiles of keys go by as in the forward pass.

#include "kernels/cuda/attention_backward.hpp"

namespace trainstone::Cuda {

template <int head_size>
struct QueryTiles {
  static constexpr int queries = 128, keys = 64, warps = 4, threads = 32 * warps, rows_of_warp = queries / warps;
  static constexpr int rows_together = rows_of_warp;            ///< of the lanes that multiply together
  static constexpr int keys_at_once = head_size > 64 ? 16 : 32; ///< whose scores are in registers
  static constexpr bool begins_with_sums = true;                ///< what is subtracted, before products are added
  static constexpr int stages = 2;
  static constexpr int blocks = 2; ///< that share a multiprocessor
  using QueryTile = SharedTile<head_size>;
  using KeyTile = SharedTile<head_size>;
  static constexpr int query_bytes = QueryTile::bytes_of(queries), tile_bytes = KeyTile::bytes_of(keys);
};

template <class T, int head_size, class Mask, class Lane, class TilesOfBlock = QueryTiles<head_size>>
class AttentionQueries {
public:
  using Tiles = TilesOfBlock;
  using LaneOfBlock = Lane;
  using Stages = KeyStages<Tiles>;
  static constexpr int shared_bytes = 2 * Tiles::query_bytes + Stages::bytes;
  using Arguments = BackwardArguments<Mask>;

  TRAINSTONE_LANE AttentionQueries(Arguments const& arguments, Lane& lane, std::byte* shared)
      : m_of(arguments),
        m_lane(lane),
        m_row(lane.warp() * Tiles::rows_of_warp),
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
    GlobalRows const keys = m_of.rows(1, m_b, m_h), values = m_of.rows(2, m_b, m_h);
    bring<Tiles::threads, Tiles::queries>(m_lane, m_queries, m_of.rows(0, m_b, m_h).from(m_first));
    bring<Tiles::threads, Tiles::queries>(m_lane, m_d_out, m_of.d_out_rows(m_b, m_h).from(m_first));
    m_stages.bring_both(m_lane, keys, values, last);
    OutRows out;
    take_out(out); // comes with the copies
    await_copies(m_lane);
    look_at_queries(out);
    for (int tile = last; tile >= 0; --tile) {
      if (tile < last) await_copies(m_lane); // nobody reads the other stage any more
      if (tile > 0) m_stages.bring_both(m_lane, keys, values, tile - 1);
      TRAINSTONE_UNROLLED
      for (int key = 0; key < Tiles::keys; key += Tiles::keys_at_once)
        if (tile * Tiles::keys + key <= m_first + last_together<Tiles>(m_row)) see(tile, key);
    }
    finish();
  }

private:
  static constexpr int parts = Tiles::rows_of_warp / 16;
  static constexpr int pairs = Tiles::keys_at_once / 16;
  static constexpr bool begins = !Mask::drops && Tiles::begins_with_sums;

  /// Of the rows of a lane, every fourth chunk.
  static constexpr int chunks = (head_size / 8 + 3) / 4;
  using OutRows = Chunk[parts][2][chunks];
  TRAINSTONE_LANE int chunk(int i) const { return 4 * i + m_lane.thread() % 4; }

  /// The query of a row of this lane's fragments.
  TRAINSTONE_LANE int query(int part, int half) const { return m_first + m_row + part * 16 + m_group + 8 * half; }

  TRAINSTONE_LANE void take_out(OutRows& out) const {
    GlobalRows const rows = m_of.out_rows(m_b, m_h);
    TRAINSTONE_UNROLLED
    for (int part = 0; part < parts; ++part) {
      TRAINSTONE_UNROLLED
      for (int half = 0; half < 2; ++half) {
        TRAINSTONE_UNROLLED
        for (int i = 0; i < chunks; ++i) {
          int const t = query(part, half);
          out[part][half][i] = {};
          if (t < m_of.sizes.sequence && 8 * chunk(i) < head_size)
            out[part][half][i] = *reinterpret_cast<Chunk const*>(rows.from(t).data + 16 * chunk(i));
        }
      }
    }
  }

  /// Numbers of each query: log_sum_exp in powers of 2, and the sum of d_out out, which others need, too.
  TRAINSTONE_LANE void look_at_queries(OutRows const& out) {
    TRAINSTONE_UNROLLED
    for (int part = 0; part < parts; ++part) {
      TRAINSTONE_UNROLLED
      for (int half = 0; half < 2; ++half) {
        float sum = 0;
        TRAINSTONE_UNROLLED
        for (int i = 0; i < chunks; ++i)
          if (8 * chunk(i) < head_size)
            sum += product(out[part][half][i], *reinterpret_cast<Chunk const*>(
                                                   m_d_out.at(m_row + 16 * part + m_group + 8 * half, 8 * chunk(i))));
        sum = sum_of_row(m_lane, sum);
        int const t = query(part, half);
        bool const is_there = t < m_of.sizes.sequence;
        std::int64_t const place = m_of.sizes.query_place(m_b, m_h, is_there ? t : 0);
        if (is_there && m_column == 0) m_of.sums[place] = sum;
        m_sums[part][half] = sum;
        m_logs[part][half] = is_there ? m_of.log_sum_exp[place] * log2_of_e : 0;
      }
    }
  }

  TRAINSTONE_LANE float product(Chunk const& left, Chunk const& right) const {
    float sum = 0;
    TRAINSTONE_UNROLLED
    for (int i = 0; i < 4; ++i)
      sum += m_lane.template low<T>(left.words[i]) * m_lane.template low<T>(right.words[i]) +
             m_lane.template high<T>(left.words[i]) * m_lane.template high<T>(right.words[i]);
    return sum;
  }

  TRAINSTONE_LANE void see(int tile, int key) {
    FragmentC scores[parts][2 * pairs], d_weights[parts][2 * pairs];
    if constexpr (begins) begin_with_sums(d_weights);
    set_row_products<T>(m_lane, m_queries, m_row, m_stages.keys(tile), key, scores);
    if constexpr (begins)
      add_row_products<T>(m_lane, m_d_out, m_row, m_stages.values(tile), key, d_weights);
    else
      set_row_products<T>(m_lane, m_d_out, m_row, m_stages.values(tile), key, d_weights);
    m_lane.await_products(scores, d_weights);
    int const first_key = tile * Tiles::keys + key;
    if (first_key + Tiles::keys_at_once > m_first + m_row) hide<false>(scores, first_key + m_column, query(0, 0));
    differentiate(first_key, scores, d_weights);
    add_weighted_rows<T>(m_lane, scores, m_stages.keys(tile), key, m_d_queries);
    m_lane.await_products(m_d_queries);
  }

  /// The gradient of a score is weight (d_weight - sum): products are added to -sum.
  TRAINSTONE_LANE void begin_with_sums(FragmentC (&d_weights)[parts][2 * pairs]) {
    TRAINSTONE_UNROLLED
    for (int part = 0; part < parts; ++part) {
      TRAINSTONE_UNROLLED
      for (int i = 0; i < 2 * pairs; ++i) {
        TRAINSTONE_UNROLLED
        for (int j = 0; j < 4; ++j) d_weights[part][i].c[j] = -m_sums[part][j / 2];
      }
    }
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
          float const weight = m_lane.power_of_2(scores[part][i].c[j] * scale - m_logs[part][j / 2]);
          float d_weight = d_weights[part][i].c[j];
          if constexpr (Mask::drops) d_weight = kept[j] ? d_weight * m_of.mask.scale : 0;
          if constexpr (!begins) d_weight -= m_sums[part][j / 2];
          scores[part][i].c[j] = weight * d_weight;
        }
      }
    }
  }

  /// Writes the warp's rows by way of the memory of its queries.
  TRAINSTONE_LANE void finish() {
    m_lane.group_barrier(); // nobody reads these rows of queries any more
    put_rows<T>(m_lane, m_d_queries, m_of.sizes.scale, m_queries, m_row);
    m_lane.warp_barrier();
    write_rows<Tiles::rows_of_warp>(m_lane, m_queries, m_row, m_of.gradient(0, m_b, m_h, m_first),
                                    m_of.sizes.qkv_row_bytes(), m_of.sizes.sequence - m_first);
  }

  Arguments const& m_of;
  Lane& m_lane;
  int m_row, m_group, m_column; ///< the warp's first row of the tile; of this lane
  int m_b, m_h, m_first;        ///< head, and first query
  typename Tiles::QueryTile m_queries, m_d_out;
  Stages m_stages;
  FragmentC m_d_queries[parts][head_size / 8] = {};
  float m_logs[parts][2], m_sums[parts][2];
};

} // namespace trainstone::Cuda
