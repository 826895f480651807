#pragma once

// The gradients of keys and values on tensor cores (attention_backward.hpp). A warp has 16 or 32 keys of a head and
// sums over the queries that see them, tile by tile. Scores are transposed here: then the weights of a product are
// already where its left factor must be.

#include "kernels/cuda/attention_backward.hpp"

namespace trainstone::Cuda {

template <int head_size, bool drops>
struct KeyTiles {
  static constexpr int warps = 4, threads = 32 * warps;
  static constexpr int rows_of_warp = head_size <= 64 ? 32 : 16; ///< whose sums are in registers
  static constexpr int rows_together = rows_of_warp;             ///< of the lanes that multiply together
  static constexpr int keys = warps * rows_of_warp, queries = 64;
  static constexpr int queries_at_once = drops && head_size <= 64 ? 16 : 32; ///< whose scores are in registers
  static constexpr bool begins_with_sums = true; ///< what is subtracted, before products are added
  static constexpr int stages = 2;
  static constexpr int blocks = 2; ///< that share a multiprocessor
  using KeyTile = SharedTile<head_size>;
  using QueryTile = SharedTile<head_size>;
  static constexpr int key_bytes = KeyTile::bytes_of(keys), query_bytes = QueryTile::bytes_of(queries),
                       stage_bytes = 2 * query_bytes + 2 * queries * static_cast<int>(sizeof(float));
};

template <class T, int head_size, class Mask, class Lane, class TilesOfBlock = KeyTiles<head_size, Mask::drops>>
class AttentionKeys {
public:
  using Tiles = TilesOfBlock;
  using LaneOfBlock = Lane;
  static constexpr int shared_bytes = 2 * Tiles::key_bytes + Tiles::stages * Tiles::stage_bytes;
  using Arguments = BackwardArguments<Mask>;

  TRAINSTONE_LANE AttentionKeys(Arguments const& arguments, Lane& lane, std::byte* shared)
      : m_of(arguments),
        m_lane(lane),
        m_row(lane.warp() * Tiles::rows_of_warp),
        m_group(lane.thread() % 32 / 4),
        m_column(lane.thread() % 4 * 2),
        m_keys{shared},
        m_values{shared + Tiles::key_bytes},
        m_stages(shared + 2 * Tiles::key_bytes) {
    PlaceOfBlock const place(m_of.sizes, lane.block());
    m_b = place.b;
    m_h = place.h;
    m_first = place.tile * Tiles::keys; // the longest first
  }

  TRAINSTONE_LANE void run() {
    int const first = m_first / Tiles::queries, end = (m_of.sizes.sequence + Tiles::queries - 1) / Tiles::queries;
    GlobalRows const queries = m_of.rows(0, m_b, m_h), d_out = m_of.d_out_rows(m_b, m_h);
    bring<Tiles::threads, Tiles::keys>(m_lane, m_keys, m_of.rows(1, m_b, m_h).from(m_first));
    bring<Tiles::threads, Tiles::keys>(m_lane, m_values, m_of.rows(2, m_b, m_h).from(m_first));
    bring_queries(queries, d_out, first);
    for (int tile = first; tile < end; ++tile) {
      await_copies(m_lane); // nobody reads the other stage any more
      if (tile + 1 < end) bring_queries(queries, d_out, tile + 1);
      TRAINSTONE_UNROLLED
      for (int query = 0; query < Tiles::queries; query += Tiles::queries_at_once)
        if (tile * Tiles::queries + query + Tiles::queries_at_once > m_first + first_together<Tiles>(m_row))
          see(tile, query);
    }
    finish();
  }

private:
  static constexpr int parts = Tiles::rows_of_warp / 16;
  static constexpr int pairs = Tiles::queries_at_once / 16;
  static constexpr bool begins = !Mask::drops && Tiles::begins_with_sums;

  TRAINSTONE_LANE std::byte* stage(int tile) const {
    return m_stages + turn_of<Tiles::stages>(tile) * Tiles::stage_bytes;
  }
  TRAINSTONE_LANE typename Tiles::QueryTile tile_of_queries(int tile) const { return {stage(tile)}; }
  TRAINSTONE_LANE typename Tiles::QueryTile tile_of_d_out(int tile) const { return {stage(tile) + Tiles::query_bytes}; }
  /// log_sum_exp of the queries of a tile, then their sums of d_out out.
  TRAINSTONE_LANE float* numbers(int tile) const {
    return reinterpret_cast<float*>(stage(tile) + 2 * Tiles::query_bytes);
  }

  TRAINSTONE_LANE void bring_queries(GlobalRows const& queries, GlobalRows const& d_out, int tile) {
    int const first = tile * Tiles::queries, thread = m_lane.thread();
    bring<Tiles::threads, Tiles::queries>(m_lane, tile_of_queries(tile), queries.from(first));
    bring<Tiles::threads, Tiles::queries>(m_lane, tile_of_d_out(tile), d_out.from(first));
    static_assert(Tiles::threads >= 2 * Tiles::queries);
    int const t = first + thread % Tiles::queries;
    float const* const from = thread < Tiles::queries ? m_of.log_sum_exp : m_of.sums;
    if (thread < 2 * Tiles::queries)
      m_lane.copy(numbers(tile) + thread, from + m_of.sizes.query_place(m_b, m_h, t), t < m_of.sizes.sequence);
    m_lane.end_copies();
  }

  /// Rows are keys, columns are queries.
  TRAINSTONE_LANE void see(int tile, int query) {
    typename Tiles::QueryTile const queries = tile_of_queries(tile), d_out = tile_of_d_out(tile);
    FragmentC weights[parts][2 * pairs], d_scores[parts][2 * pairs];
    if constexpr (begins) begin_with_sums(numbers(tile) + Tiles::queries + query, d_scores);
    set_row_products<T>(m_lane, m_keys, m_row, queries, query, weights);
    if constexpr (begins)
      add_row_products<T>(m_lane, m_values, m_row, d_out, query, d_scores);
    else
      set_row_products<T>(m_lane, m_values, m_row, d_out, query, d_scores);
    m_lane.await_products(weights, d_scores);
    int const first_query = tile * Tiles::queries + query, first_key = m_first + m_row;
    if (first_query < first_key + Tiles::rows_of_warp) hide<true>(weights, first_query + m_column, first_key + m_group);
    differentiate(tile, query, weights, d_scores);
    add_weighted_rows<T>(m_lane, weights, d_out, query, m_d_values);
    add_weighted_rows<T>(m_lane, d_scores, queries, query, m_d_keys);
    m_lane.await_products(m_d_values, m_d_keys);
  }

  /// The gradient of a score is weight (d_weight - sum): products are added to -sum.
  TRAINSTONE_LANE void begin_with_sums(float const* sums, FragmentC (&d_scores)[parts][2 * pairs]) {
    TRAINSTONE_UNROLLED
    for (int i = 0; i < 2 * pairs; ++i) {
      TRAINSTONE_UNROLLED
      for (int part = 0; part < parts; ++part) {
        TRAINSTONE_UNROLLED
        for (int j = 0; j < 4; ++j) d_scores[part][i].c[j] = -sums[8 * i + m_column + j % 2];
      }
    }
  }

  /// Scores become the weights of the values, and the gradients of weights those of scores, without the scale.
  TRAINSTONE_LANE void differentiate(int tile, int query, FragmentC (&scores)[parts][2 * pairs],
                                     FragmentC (&d_weights)[parts][2 * pairs]) {
    float const scale = m_of.sizes.scale * log2_of_e;
    float const* const of_queries = numbers(tile) + query;
    TRAINSTONE_UNROLLED
    for (int i = 0; i < 2 * pairs; ++i) {
      float logs[2];
      [[maybe_unused]] float sums[2];
      TRAINSTONE_UNROLLED
      for (int j = 0; j < 2; ++j) {
        logs[j] = of_queries[8 * i + m_column + j] * log2_of_e;
        sums[j] = of_queries[Tiles::queries + 8 * i + m_column + j];
      }
      int const first_query = tile * Tiles::queries + query + 8 * i;
      TRAINSTONE_UNROLLED
      for (int part = 0; part < parts; ++part) {
        bool kept[4] = {true, true, true, true};
        if constexpr (Mask::drops)
          m_of.mask.kept_of_keys(m_lane, m_b, m_h, first_query, m_first + m_row + 16 * part + m_group, kept);
        TRAINSTONE_UNROLLED
        for (int j = 0; j < 4; ++j) {
          float const weight = m_lane.power_of_2(scores[part][i].c[j] * scale - logs[j % 2]);
          float d_weight = d_weights[part][i].c[j];
          if constexpr (Mask::drops) d_weight = kept[j] ? d_weight * scale_of_kept() : 0;
          if constexpr (!begins) d_weight -= sums[j % 2];
          d_weights[part][i].c[j] = weight * d_weight;
          scores[part][i].c[j] = kept[j] ? weight : 0;
        }
      }
    }
  }

  TRAINSTONE_LANE float scale_of_kept() const {
    if constexpr (Mask::drops) return m_of.mask.scale;
    return 1;
  }

  /// Writes the warp's rows by way of the memory of its keys and values.
  TRAINSTONE_LANE void finish() {
    m_lane.group_barrier(); // nobody reads these rows of keys and values any more
    put_rows<T>(m_lane, m_d_keys, m_of.sizes.scale, m_keys, m_row);
    put_rows<T>(m_lane, m_d_values, scale_of_kept(), m_values, m_row);
    m_lane.warp_barrier();
    int const count = m_of.sizes.sequence - m_first;
    write_rows<Tiles::rows_of_warp>(m_lane, m_keys, m_row, m_of.gradient(1, m_b, m_h, m_first),
                                    m_of.sizes.qkv_row_bytes(), count);
    write_rows<Tiles::rows_of_warp>(m_lane, m_values, m_row, m_of.gradient(2, m_b, m_h, m_first),
                                    m_of.sizes.qkv_row_bytes(), count);
  }

  Arguments const& m_of;
  Lane& m_lane;
  int m_row, m_group, m_column; ///< the warp's first row of the tile; of this lane
  int m_b, m_h, m_first;        ///< head, and first key
  typename Tiles::KeyTile m_keys, m_values;
  std::byte* m_stages; ///< of queries, d_out and numbers
  FragmentC m_d_keys[parts][head_size / 8] = {}, m_d_values[parts][head_size / 8] = {};
};

} // namespace trainstone::Cuda
