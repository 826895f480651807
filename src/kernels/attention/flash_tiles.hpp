#pragma once

// The tiles of flash attention: which queries and keys are in them, and which of those see each other or are dropped.
// Included by k_impl.hpp files only.

#include "core/views.hpp"
#include "kernels/common/attention_shape.hpp"
#include "kernels/dropout_mask.hpp"
#include "kernels/gemm/tile_product.hpp"

namespace trainstone::Impl {

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

} // namespace trainstone::Impl
