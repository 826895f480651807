#pragma once

// Sizes of causal attention, and where a head's rows lie in qkv, out and what is kept per head. Owns no data. Included
// by k_impl.hpp files only.

#include "core/error.hpp"
#include "core/views.hpp"

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

} // namespace trainstone::Impl
