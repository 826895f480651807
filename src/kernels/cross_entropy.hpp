#pragma once

// Softmax cross-entropy over vocabulary rows, alone (held-out loss) and fused with its gradient in place (training).
// Columns >= vocab are padding: they take no part in the softmax and get gradient 0. The loss is per row; the mean is
// the caller's, and so is the scale of the gradient (1 / tokens of the global batch).

#include "core/views.hpp"
#include "core/write.hpp"

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

// The same with the vocabulary in slices, on one rank or on several. Columns >= valid of a slice are padding; a slice
// may be padding alone. First the maximum over slices, then the sums, which are added over slices, then losses and
// gradient.

/// Whether the logits must be there afterwards, or are on their way to become their gradient.
enum class LogitsUse { kept, become_gradient };

/// maxima = the maximum over the slice's valid columns, per row; -infinity if there are none.
///                                                                  reference: std::max
/// \param[in]     exec            work is enqueued here; returns without fencing
/// \param[in]     logits (N, S)   \param[in] valid   <= S
/// \param[in,out] maxima (N)      overwritten, or the maximum with what is there, with Write::add
/// \throws Error                  if extents differ (message names both shapes)
/// Work: N valid FLOP; N valid sizeof(T) + 4 N bytes.
template <class T>
void cross_entropy_maximum(ExecutionSpace const& exec, Matrix<T const> logits, Index valid, Write mode,
                           Vector<float> maxima);

/// sums = {sum of exp(logits - maximum), the target's logit}, per row; a target of another slice has 0 here.
///                                                                  reference: reference::cross_entropy_forward
/// \param[in]     exec            work is enqueued here; returns without fencing
/// \param[in,out] logits (N, S)   if they become their gradient, fp32 rows on hosts have their powers on return
/// \param[in]     targets (N)     \param[in] first   token of column 0        \param[in] valid   <= S
/// \param[in]     maxima (N)      over all slices
/// \param[out]    sums (N, 2)     overwritten
/// \throws Error                  if extents differ (message names both shapes)
/// Work: 3 N valid FLOP (an exponential counts as one); N valid sizeof(T) + 24 N bytes.
template <class T>
void cross_entropy_sums(ExecutionSpace const& exec, Matrix<T> logits, Vector<std::int32_t const> targets, Index first,
                        Index valid, Vector<float const> maxima, LogitsUse use, Matrix<double> sums);

/// losses = log(sum) + maximum - target's logit, per row.           reference: reference::cross_entropy_forward
/// \param[in]     exec            work is enqueued here; returns without fencing
/// \param[in]     maxima (N), sums (N, 2)   over all slices        \param[out] losses (N)   overwritten, fp32
/// \throws Error                  if extents differ (message names both shapes)
/// Work: 3 N FLOP (a logarithm counts as one); 24 N bytes.
void cross_entropy_losses(ExecutionSpace const& exec, Vector<float const> maxima, Matrix<double const> sums,
                          Vector<float> losses);

/// What cross_entropy_sums has left of a slice's logits becomes d_logits = (softmax - onehot(target)) * scale, 0 in
/// columns >= valid.                                                reference: reference::cross_entropy_backward
/// \param[in]     exec            work is enqueued here; returns without fencing
/// \param[in,out] logits (N, S)   \param[in] targets, first, valid, maxima   as above
/// \param[in]     sums (N, 2)     over all slices                  \param[in] scale
/// \throws Error                  if extents differ (message names both shapes)
/// Work: N valid FLOP in fp32 on hosts, else 3; N valid sizeof(T) + N S sizeof(T) + 24 N bytes.
template <class T>
void cross_entropy_gradient(ExecutionSpace const& exec, Matrix<T> logits, Vector<std::int32_t const> targets,
                            Index first, Index valid, Vector<float const> maxima, Matrix<double const> sums,
                            float scale);

} // namespace trainstone
