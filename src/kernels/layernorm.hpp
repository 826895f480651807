#pragma once

// Layer norm over the last index, alone and fused with the residual add before it, and its gradient. Statistics are
// fp32 and kept by the caller for backward. eps is 1e-5, inside the square root.
// Source: Layer Normalization, arXiv:1607.06450.

#include "core/views.hpp"
#include "core/write.hpp"

namespace trainstone {

inline constexpr float layernorm_epsilon = 1e-5F;

/// y = (x - mean) * rstd * gamma + beta, per row.            reference: reference::layernorm_forward
/// \param[in]  exec        work is enqueued here; returns without fencing
/// \param[in]  x (N, C)    \param[in] gamma, beta (C)
/// \param[out] y (N, C)    overwritten; may alias x          \param[out] mean, rstd (N) fp32, kept for backward
/// \throws Error           if extents differ (message names both shapes)
/// Work: 8 N C FLOP; 2 N C sizeof(T) + 8 N + 2 C sizeof(T) bytes.
template <class T>
void layernorm_forward(ExecutionSpace const& exec, Matrix<T const> x, Vector<T const> gamma, Vector<T const> beta,
                       Matrix<T> y, Vector<float> mean, Vector<float> rstd);

/// sum = x + branch + branch_bias; y = layer norm of sum, per row.
///                                reference: reference::residual_forward, then reference::layernorm_forward
/// \param[in]  exec        work is enqueued here; returns without fencing
/// \param[in]  x, branch (N, C)              \param[in] branch_bias (C), or empty: none; gamma, beta (C)
/// \param[out] sum (N, C)  overwritten; may alias x or branch
/// \param[out] y (N, C)    overwritten; may alias branch     \param[out] mean, rstd (N) fp32, kept for backward
/// \throws Error           if extents differ (message names both shapes)
/// Work: 10 N C FLOP; 4 N C sizeof(T) + 8 N + 3 C sizeof(T) bytes.
template <class T>
void residual_layernorm_forward(ExecutionSpace const& exec, Matrix<T const> x, Matrix<T const> branch,
                                Vector<T const> branch_bias, Vector<T const> gamma, Vector<T const> beta, Matrix<T> sum,
                                Matrix<T> y, Vector<float> mean, Vector<float> rstd);

/// The gradient of layernorm_forward. Column sums run over rows in a fixed order: the same bits in every run.
///                                                           reference: reference::layernorm_backward
/// \param[in]  exec               work is enqueued here; returns without fencing
/// \param[in]  d_y, x (N, C)      \param[in] gamma (C)       \param[in] mean, rstd (N) of the forward pass
/// \param[out] d_x (N, C)         d_x_mode; must not alias d_y
/// \param[out] d_gamma, d_beta (C)  parameter_mode
/// \throws Error                  if extents differ (message names both shapes)
/// Work: 16 N C FLOP; (5 N C + C) sizeof(T) + 2 C sizeof(Gradient) + 16 N bytes, N C sizeof(T) more if d_x is added to,
/// 2 C sizeof(Gradient) more if d_gamma and d_beta are.
template <class T, class Gradient>
void layernorm_backward(ExecutionSpace const& exec, Matrix<T const> d_y, Matrix<T const> x, Vector<T const> gamma,
                        Vector<float const> mean, Vector<float const> rstd, Matrix<T> d_x, Write d_x_mode,
                        Vector<Gradient> d_gamma, Vector<Gradient> d_beta, Write parameter_mode);

/// The gradient of the input alone.
/// Work: 12 N C FLOP; (3 N C + C) sizeof(T) + 8 N bytes, N C sizeof(T) more if d_x is added to.
template <class T>
void layernorm_backward_input(ExecutionSpace const& exec, Matrix<T const> d_y, Matrix<T const> x, Vector<T const> gamma,
                              Vector<float const> mean, Vector<float const> rstd, Matrix<T> d_x, Write d_x_mode);

/// The gradients of gamma and beta as sums over blocks of positions: block i has the positions
/// [i sequence / blocks, (i + 1) sequence / blocks) of all sequences, rows ascending. Whoever has a block gets the same
/// bits.                                                     reference: reference::layernorm_backward of a block's rows
/// \param[in]  exec        work is enqueued here; returns without fencing
/// \param[in]  d_y, x (N, C)   \param[in] mean, rstd (N) of the forward pass
/// \param[in]  sequence    a multiple of the number of blocks; N is a multiple of it
/// \param[out] sums (blocks, 2 C)   overwritten: of gamma, then of beta
/// \throws Error           if extents differ (message names both shapes)
/// Work: 4 N C FLOP; 2 N C sizeof(T) + 8 N + 8 blocks C bytes.
template <class T>
void layernorm_block_sums(ExecutionSpace const& exec, Matrix<T const> d_y, Matrix<T const> x, Vector<float const> mean,
                          Vector<float const> rstd, Index sequence, Matrix<float> sums);

/// d_gamma, d_beta = or += the sums over blocks, added in the balanced binary tree over the blocks.
///                                                           reference: itself
/// \param[in]  exec        work is enqueued here; returns without fencing
/// \param[in]  sums (blocks, 2 C)   at most 2^16 blocks     \param[out] d_gamma, d_beta (C)   mode
/// \throws Error           if extents differ (message names both shapes)
/// Work: 2 blocks C FLOP; 8 blocks C + 2 C sizeof(Gradient) bytes, 2 C sizeof(Gradient) more if they are added to.
template <class Gradient>
void layernorm_sum_blocks(ExecutionSpace const& exec, Matrix<float const> sums, Vector<Gradient> d_gamma,
                          Vector<Gradient> d_beta, Write mode);

} // namespace trainstone
