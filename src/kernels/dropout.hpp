#pragma once

// Dropout: elements are set to zero with a probability, the others grow by 1 / (1 - rate), so that the expectation
// stays. Masks come from counters: no state, nothing to carry between ranks; a mask may be kept for backward, or be
// computed again there. Attention drops inside of its own kernels, by the same masks.
// Source: Dropout: A Simple Way to Prevent Neural Networks from Overfitting (JMLR 15).

#include "core/views.hpp"

#include <cstdint>

namespace trainstone {

/// One use of dropout on one micro-batch.
struct Dropout {
  double rate = 0; ///< probability of an element to be dropped, in [0, 1); 0 = no dropout
  std::uint64_t seed = 0;
  std::uint64_t first_sample = 0; ///< of the micro-batch's first sequence, counted from the start of training; < 2^44
  std::uint32_t site = 0;         ///< which of the model's dropouts; < 2^24. Positions are < 2^20, heads < 2^14
  std::uint32_t first_head = 0;   ///< of attention on some of the heads: the number of the first one
  Index first_position = 0;       ///< of rows of some of the positions: the first one
  Index first_feature = 0;        ///< of rows of some of the features: the first one
  bool is_on() const { return rate > 0; }
  bool operator==(Dropout const&) const = default;
};

/// What a mask is kept in: 1 where an element is kept, 0 where it is dropped.
using MaskByte = std::uint8_t;

/// x = dropout of (x + bias), in place.                      reference: reference::dropout
/// \param[in]     exec       work is enqueued here; returns without fencing
/// \param[in]     dropout    on
/// \param[in]     sequence   N is a multiple of it: row n is position first + n mod sequence of sample n / sequence
/// \param[in]     bias (C), or empty: none
/// \param[in,out] x (N, C)
/// \param[out]    mask (N, C) overwritten; or empty: it is not kept
/// \throws Error   if extents differ (message names both shapes), or the dropout is out of its ranges
/// Work: 2 N C FLOP; 2 N C sizeof(T) + C sizeof(T) bytes, N C more for a mask.
template <class T>
void dropout_forward(ExecutionSpace const& exec, Dropout const& dropout, Index sequence, Vector<T const> bias,
                     Matrix<T> x, Matrix<MaskByte> mask);

/// d_x = the gradient of dropout_forward.                    reference: reference::dropout
/// \param[in]  exec         work is enqueued here; returns without fencing
/// \param[in]  dropout, sequence   as forward had them
/// \param[in]  mask (N, C)  that forward left, or empty: it is computed again
/// \param[in]  d_y (N, C)   \param[out] d_x (N, C)   overwritten; may alias d_y
/// \throws Error            if extents differ (message names both shapes), or the dropout is out of its ranges
/// Work: N C FLOP; 2 N C sizeof(T) bytes, N C more for a mask.
template <class T>
void dropout_backward(ExecutionSpace const& exec, Dropout const& dropout, Index sequence, Matrix<MaskByte const> mask,
                      Matrix<T const> d_y, Matrix<T> d_x);

} // namespace trainstone
