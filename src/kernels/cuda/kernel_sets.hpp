#pragma once

// The kernels of attention on tensor cores are written once, and come in two sets: by products of a warp (mma.sync),
// which all devices have that have 16-bit tensor cores, and by products of a warpgroup (wgmma), which devices of
// compute capability 9.0 have. A set says how many rows a block has, how its tiles lie in shared memory, and how
// kernels are called.

#include "kernels/cuda/attention_forward.hpp"
#include "kernels/cuda/attention_keys.hpp"
#include "kernels/cuda/attention_queries.hpp"
#include "kernels/cuda/swizzled_tile.hpp"

namespace trainstone::Cuda {

/// Tiles that go by have 64 rows: a product of a warpgroup with fewer columns waits for shared memory.
template <int head_size, bool drops>
struct WarpgroupForwardTiles {
  static constexpr int queries = 128, keys = 64, keys_at_once = drops ? 32 : keys;
  static constexpr int warps = 8, threads = 32 * warps, rows_of_warp = queries / warps;
  static constexpr int rows_together = rows_of_warpgroup;
  static constexpr int stages = 2;
  static constexpr int blocks = 2; ///< that share a multiprocessor
  using QueryTile = SwizzledTile<queries, head_size>;
  using KeyTile = SwizzledTile<keys, head_size>;
  static constexpr int query_bytes = QueryTile::bytes, tile_bytes = KeyTile::bytes;
};

template <int head_size>
struct WarpgroupQueryTiles {
  static constexpr int queries = 64, keys = 64, keys_at_once = keys;
  static constexpr int warps = 4, threads = 32 * warps, rows_of_warp = queries / warps;
  static constexpr int rows_together = rows_of_warpgroup;
  static constexpr bool begins_with_sums = false; // registers of products in flight are not to be written
  static constexpr int stages = 2;
  static constexpr int blocks = head_size == 64 ? 3 : 2; ///< that share a multiprocessor
  using QueryTile = SwizzledTile<queries, head_size>;
  using KeyTile = SwizzledTile<keys, head_size>;
  static constexpr int query_bytes = QueryTile::bytes, tile_bytes = KeyTile::bytes;
};

template <int head_size, bool drops>
struct WarpgroupKeyTiles {
  static constexpr int keys = 64, queries = 64, queries_at_once = drops ? 32 : queries;
  static constexpr int warps = 4, threads = 32 * warps, rows_of_warp = keys / warps;
  static constexpr int rows_together = rows_of_warpgroup;
  static constexpr bool begins_with_sums = false; // registers of products in flight are not to be written
  static constexpr int stages = 2;
  static constexpr int blocks = head_size == 64 ? 3 : 2; ///< that share a multiprocessor
  using KeyTile = SwizzledTile<keys, head_size>;
  using QueryTile = SwizzledTile<queries, head_size>;
  static constexpr int key_bytes = KeyTile::bytes, query_bytes = QueryTile::bytes,
                       stage_bytes = 2 * query_bytes + QueryTile::eight_rows; ///< panels need an alignment
};

struct WarpKernels {
  template <int head_size, bool drops>
  using ForwardTiles = Cuda::ForwardTiles<head_size, drops>;
  template <int head_size>
  using QueryTiles = Cuda::QueryTiles<head_size>;
  template <int head_size, bool drops>
  using KeyTiles = Cuda::KeyTiles<head_size, drops>;
};

struct WarpgroupKernels {
  template <int head_size, bool drops>
  using ForwardTiles = WarpgroupForwardTiles<head_size, drops>;
  template <int head_size>
  using QueryTiles = WarpgroupQueryTiles<head_size>;
  template <int head_size, bool drops>
  using KeyTiles = WarpgroupKeyTiles<head_size, drops>;
};

/// The three kernels of a set, for values of type T on lanes of a type.
template <class Set, class T, int head_size, class Mask, class Lane>
struct KernelsOf {
  using Forward =
      AttentionForward<T, head_size, Mask, Lane, typename Set::template ForwardTiles<head_size, Mask::drops>>;
  using Queries = AttentionQueries<T, head_size, Mask, Lane, typename Set::template QueryTiles<head_size>>;
  using Keys = AttentionKeys<T, head_size, Mask, Lane, typename Set::template KeyTiles<head_size, Mask::drops>>;
};

} // namespace trainstone::Cuda
