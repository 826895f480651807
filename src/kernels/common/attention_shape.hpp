#pragma once

// Sizes of causal attention, and where a head's rows lie in qkv, out and what is kept per head. Owns no data. Included
// by k_impl.hpp files only.

#include "core/error.hpp"
#include "core/views.hpp"
#include "kernels/common/shapes.hpp"

namespace trainstone::Impl {

/// Sizes, and where one head's rows begin: q, k and v lie `channels` apart in rows of 3 `channels`.
struct AttentionShape {
  Index batch, sequence, heads, head_size;

  KOKKOS_INLINE_FUNCTION Index channels() const { return heads * head_size; }
  KOKKOS_INLINE_FUNCTION Index qkv_offset(Index b, Index h) const {
    return b * sequence * 3 * channels() + h * head_size;
  }
  KOKKOS_INLINE_FUNCTION Index out_offset(Index b, Index h) const { return b * sequence * channels() + h * head_size; }
  KOKKOS_INLINE_FUNCTION Index probabilities_offset(Index b, Index h) const {
    return (b * heads + h) * sequence * sequence;
  }
  /// Of a vector with one value per query.
  KOKKOS_INLINE_FUNCTION Index query_offset(Index b, Index h) const { return (b * heads + h) * sequence; }
  KOKKOS_INLINE_FUNCTION float scale() const { return 1.0F / Kokkos::sqrt(static_cast<float>(head_size)); }
};

/// \throws Error   if the channels do not divide into heads; `where` names the caller
inline AttentionShape attention_shape(char const* where, Index batch, Index heads, Index sequence, Index channels) {
  TRAINSTONE_REQUIRE(heads > 0 && channels % heads == 0, "{}: {} channels do not divide into {} heads", where, channels,
                     heads);
  return {.batch = batch, .sequence = sequence, .heads = heads, .head_size = channels / heads};
}

/// Checks the shapes that forward and backward of flash attention share: qkv (B T, 3 C), out (B T, C), log_sum_exp (B
/// NH T).
template <class Qkv, class Out, class LogSumExp>
AttentionShape flash_attention_shape(char const* where, Qkv const& qkv, Index batch, Index heads,
                                     LogSumExp const& log_sum_exp, Out const& out) {
  Index const rows = extent(out, 0), channels = extent(out, 1);
  TRAINSTONE_REQUIRE(batch > 0 ? rows % batch == 0 : rows == 0, "{}: {} rows do not divide into {} sequences", where,
                     rows, batch);
  AttentionShape const shape = attention_shape(where, batch, heads, batch > 0 ? rows / batch : 0, channels);
  require_shape(where, qkv, {rows, 3 * channels});
  require_shape(where, log_sum_exp, {rows * heads});
  return shape;
}

} // namespace trainstone::Impl
