#pragma once

// Softmax cross-entropy over vocabulary rows, alone (held-out loss) and fused with its gradient in place (training).
// Columns >= vocab are padding: they take no part in the softmax and get gradient 0. The loss is per row; the mean is
// the caller's, and so is the scale of the gradient (1 / tokens of the global batch).

#include "core/views.hpp"

#include <cstdint>

namespace trainstone {

/// losses = log(sum of exp(logits)) - logits[target], per row.      reference: reference::cross_entropy_forward
/// \param[in]  exec            work is enqueued here; returns without fencing
/// \param[in]  logits (N, Vp)  \param[in] targets (N)   in [0, vocab), checked where the data is read
/// \param[in]  vocab           <= Vp
/// \param[out] losses (N)      overwritten, fp32
/// \throws Error               if extents differ (message names both shapes)
/// Work: 4 N V FLOP (an exponential counts as one); N V sizeof(T) + 8 N bytes.
template <class T>
void cross_entropy_forward(ExecutionSpace const& exec, Matrix<T const> logits, Vector<std::int32_t const> targets,
                           Index vocab, Vector<float> losses);

/// As cross_entropy_forward, and logits become d_logits = (softmax - onehot(target)) * scale, 0 in columns >= vocab.
///                                                                  reference: reference::cross_entropy_backward
/// \param[in]     exec            work is enqueued here; returns without fencing
/// \param[in,out] logits (N, Vp)  gradient on return
/// \param[in]     targets (N)     in [0, vocab), checked where the data is read
/// \param[in]     vocab           <= Vp                             \param[in] scale
/// \param[out]    losses (N)      overwritten, fp32, not scaled
/// \throws Error                  if extents differ (message names both shapes)
/// Work: 5 N V FLOP in fp32 on hosts, else 7 (an exponential counts as one); N V sizeof(T) + N Vp sizeof(T) + 8 N
/// bytes.
template <class T>
void cross_entropy_backward_fused(ExecutionSpace const& exec, Matrix<T> logits, Vector<std::int32_t const> targets,
                                  Index vocab, float scale, Vector<float> losses);

} // namespace trainstone
