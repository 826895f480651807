#pragma once

// The check of extents at a kernel's entry: one form of message for all kernels. Does not look at the data.

#include "core/views.hpp"

#include <array>
#include <initializer_list>
#include <span>

namespace trainstone::Impl {

template <class View>
Index extent(View const& view, int dimension) {
  return static_cast<Index>(view.extent(dimension));
}

/// Throws Error "<what> has shape (..), expected (..)" if the two differ.
void require_same_shape(char const* what, std::span<Index const> shape, std::span<Index const> expected);

/// `what` names function and argument: "layernorm_forward: gamma".
template <class View>
void require_shape(char const* what, View const& view, std::initializer_list<Index> expected) {
  std::array<Index, View::rank()> shape{};
  for (std::size_t i = 0; i < shape.size(); ++i) shape[i] = static_cast<Index>(view.extent(i));
  require_same_shape(what, shape, {expected.begin(), expected.size()});
}

/// Throws Error unless rows are whole sequences.
void require_sequences(char const* what, Index rows, Index sequence);

} // namespace trainstone::Impl
