#pragma once

// Layer norm of rows whose features lie in parts on several ranks. A rank leaves two sums of every row of its part;
// when these are of all parts, it finishes its part. The gradients of gamma and beta need no other part: see
// layernorm_block_sums of layernorm.hpp. Source: Layer Normalization, arXiv:1607.06450.

#include "core/views.hpp"
#include "core/write.hpp"

namespace trainstone {

/// sums = {the sum of x, the sum of x^2}, per row. The squares are taken around the mean of the part, so that a large
/// mean costs no accuracy.                                   reference: itself, in fp64
/// \param[in]  exec        work is enqueued here; returns without fencing
/// \param[in]  x (N, C)    \param[out] sums (N, 2) fp64, overwritten
/// \throws Error           if extents differ (message names both shapes)
/// Work: 4 N C FLOP; N C sizeof(T) + 16 N bytes.
template <class T>
void layernorm_sums(ExecutionSpace const& exec, Matrix<T const> x, Matrix<double> sums);

/// y, mean and rstd as of layernorm_forward of all parts.    reference: reference::layernorm_forward
/// \param[in]  exec        work is enqueued here; returns without fencing
/// \param[in]  x (N, C)    \param[in] sums (N, 2) over all parts   \param[in] features   of all parts
/// \param[in]  gamma, beta (C)   \param[out] y (N, C)   overwritten; may alias x
/// \param[out] mean, rstd (N) fp32, kept for backward
/// \throws Error           if extents differ (message names both shapes)
/// Work: 4 N C FLOP; (2 N C + 2 C) sizeof(T) + 24 N bytes.
template <class T>
void layernorm_of_sums(ExecutionSpace const& exec, Matrix<T const> x, Matrix<double const> sums, Index features,
                       Vector<T const> gamma, Vector<T const> beta, Matrix<T> y, Vector<float> mean,
                       Vector<float> rstd);

/// sums = {the sum of d_norm, the sum of d_norm norm}, per row, with norm = (x - mean) rstd and d_norm = d_y gamma.
///                                                           reference: itself, in fp64
/// \param[in]  exec        work is enqueued here; returns without fencing
/// \param[in]  d_y, x (N, C)   \param[in] gamma (C)   \param[in] mean, rstd (N) of the forward pass
/// \param[out] sums (N, 2) fp64, overwritten
/// \throws Error           if extents differ (message names both shapes)
/// Work: 6 N C FLOP; (2 N C + C) sizeof(T) + 24 N bytes.
template <class T>
void layernorm_backward_sums(ExecutionSpace const& exec, Matrix<T const> d_y, Matrix<T const> x, Vector<T const> gamma,
                             Vector<float const> mean, Vector<float const> rstd, Matrix<double> sums);

/// The gradient of the input, as of layernorm_backward of all parts.
///                                                           reference: reference::layernorm_backward
/// \param[in]  exec        work is enqueued here; returns without fencing
/// \param[in]  d_y, x (N, C)   \param[in] gamma (C)   \param[in] mean, rstd (N) of the forward pass
/// \param[in]  sums (N, 2) over all parts   \param[in] features   of all parts
/// \param[out] d_x (N, C)  d_x_mode; must not alias d_y
/// \throws Error           if extents differ (message names both shapes)
/// Work: 7 N C FLOP; (3 N C + C) sizeof(T) + 24 N bytes, N C sizeof(T) more if d_x is added to.
template <class T>
void layernorm_backward_of_sums(ExecutionSpace const& exec, Matrix<T const> d_y, Matrix<T const> x,
                                Vector<T const> gamma, Vector<float const> mean, Vector<float const> rstd,
                                Matrix<double const> sums, Index features, Matrix<T> d_x, Write d_x_mode);

} // namespace trainstone
