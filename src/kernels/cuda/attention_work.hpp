#pragma once

// FLOPs that the kernels of attention on tensor cores execute: those of the fragments that are multiplied, masked pairs
// and rows behind the sequence included. Pure functions.

#include "core/error.hpp"
#include "kernels/cuda/kernel_sets.hpp"
#include "kernels/cuda/tensor_attention.hpp"

#include <algorithm>
#include <type_traits>

namespace trainstone::Cuda {

/// body(a head size that is known to the compiler). \throws Error   for a head size that there are no kernels of
template <class Body>
auto with_head_size(std::int64_t head_size, Body const& body) {
  switch (head_size) {
  case 64: return body(std::integral_constant<int, 64>());
  case 80: return body(std::integral_constant<int, 80>());
  case 96: return body(std::integral_constant<int, 96>());
  case 128: return body(std::integral_constant<int, 128>());
  default: throw Error(fmt::format("no attention on tensor cores of heads of {} channels", head_size));
  }
}

/// Pairs of query and key, of one head, whose products a kernel with tiles of queries computes.
/// \param[in] at_once  keys that lanes which multiply together look at or leave out
template <class Tiles>
constexpr std::int64_t pairs_of_queries(std::int64_t sequence, std::int64_t at_once) {
  std::int64_t pairs = 0;
  for (std::int64_t first = 0; first < sequence; first += Tiles::queries) {
    std::int64_t const end = std::min<std::int64_t>(first + Tiles::queries, sequence);
    std::int64_t const keys = ((end - 1) / Tiles::keys + 1) * Tiles::keys; // in the tiles that go by
    for (std::int64_t row = first; row < first + Tiles::queries; row += Tiles::rows_together) {
      std::int64_t const last = row + Tiles::rows_together - 1;
      pairs += Tiles::rows_together * std::min(keys, (last / at_once + 1) * at_once);
    }
  }
  return pairs;
}

/// The same of a kernel with tiles of keys.
template <class Tiles>
constexpr std::int64_t pairs_of_keys(std::int64_t sequence) {
  std::int64_t pairs = 0;
  std::int64_t const end = (sequence + Tiles::queries - 1) / Tiles::queries * Tiles::queries;
  for (std::int64_t first = 0; first < sequence; first += Tiles::keys)
    for (std::int64_t row = first; row < first + Tiles::keys; row += Tiles::rows_together)
      pairs +=
          Tiles::rows_together * std::max<std::int64_t>(0, end - row / Tiles::queries_at_once * Tiles::queries_at_once);
  return pairs;
}

/// Of a head, by a set of kernels (kernel_sets.hpp). Two products.
template <class Set, int head_size, bool drops>
constexpr std::int64_t attention_forward_flops(std::int64_t sequence) {
  using Tiles = typename Set::template ForwardTiles<head_size, drops>;
  return 2 * 2 * head_size * pairs_of_queries<Tiles>(sequence, Tiles::keys_at_once);
}

/// Of a head. Three products.
template <class Set, int head_size>
constexpr std::int64_t backward_queries_flops(std::int64_t sequence) {
  using Tiles = typename Set::template QueryTiles<head_size>;
  return 3 * 2 * head_size * pairs_of_queries<Tiles>(sequence, Tiles::keys_at_once);
}

/// Of a head. Four products.
template <class Set, int head_size, bool drops>
constexpr std::int64_t backward_keys_flops(std::int64_t sequence) {
  return 4 * 2 * head_size * pairs_of_keys<typename Set::template KeyTiles<head_size, drops>>(sequence);
}

template <class Set, int head_size, bool drops>
constexpr std::int64_t attention_backward_flops(std::int64_t sequence) {
  return backward_queries_flops<Set, head_size>(sequence) + backward_keys_flops<Set, head_size, drops>(sequence);
}

/// Of a call.
template <class Set>
TensorAttentionFlops flops_of(Index batch, Index sequence, Index heads, Index head_size, bool drops) {
  auto const of_all = [&](std::int64_t of_head) { return static_cast<std::uint64_t>(batch * heads * of_head); };
  return with_head_size(head_size, [&]<int size>(std::integral_constant<int, size>) -> TensorAttentionFlops {
    return {of_all(drops ? attention_forward_flops<Set, size, true>(sequence)
                         : attention_forward_flops<Set, size, false>(sequence)),
            of_all(backward_queries_flops<Set, size>(sequence)),
            of_all(drops ? backward_keys_flops<Set, size, true>(sequence)
                         : backward_keys_flops<Set, size, false>(sequence))};
  });
}

} // namespace trainstone::Cuda
