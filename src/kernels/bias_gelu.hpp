#pragma once

// What follows a GEMM element by element: the bias, the GELU in its tanh form, and the gradients of both.
// Source: Gaussian Error Linear Units, arXiv:1606.08415; 0.5 x (1 + tanh(u)) is evaluated as x * sigmoid(2 u),
// u = sqrt(2 / pi) (x + 0.044715 x^3).

#include "core/views.hpp"
#include "core/write.hpp"

namespace trainstone {

/// y = x + bias, per row.                                    reference: reference::add_bias
/// \param[in]     exec      work is enqueued here; returns without fencing
/// \param[in]     bias (C)  \param[in] x (N, C)   \param[out] y (N, C)   overwritten; may alias x
/// \throws Error            if extents differ (message names both shapes)
/// Work: N C FLOP; 2 N C sizeof(T) + C sizeof(T) bytes.
template <class T>
void add_bias(ExecutionSpace const& exec, Vector<T const> bias, Matrix<T const> x, Matrix<T> y);
template <class T>
void add_bias(ExecutionSpace const& exec, Vector<T const> bias, Matrix<T> x) {
  add_bias<T>(exec, bias, x, x);
}

/// pre = x + bias; y = gelu(pre), of pre as it is stored: y can be computed again from it, bit by bit.
///                                                           reference: reference::bias_gelu_forward
/// \param[in]     exec      work is enqueued here; returns without fencing
/// \param[in]     bias (C)  \param[in] x (N, C)
/// \param[out]    pre (N, C)   overwritten, kept for backward; may alias x
/// \param[out]    y (N, C)  overwritten; may alias x
/// \throws Error            if extents differ (message names both shapes)
/// Work: 10 N C FLOP (an exponential counts as one); 3 N C sizeof(T) + C sizeof(T) bytes.
template <class T>
void bias_gelu_forward(ExecutionSpace const& exec, Vector<T const> bias, Matrix<T const> x, Matrix<T> pre, Matrix<T> y);
template <class T>
void bias_gelu_forward(ExecutionSpace const& exec, Vector<T const> bias, Matrix<T> x, Matrix<T> y) {
  bias_gelu_forward<T>(exec, bias, x, x, y);
}

/// d_x = d_y * gelu'(x), in place.                           reference: reference::gelu_backward
/// \param[in]     exec      work is enqueued here; returns without fencing
/// \param[in]     x (N, C)  biased, as bias_gelu_forward left it
/// \param[in,out] d_y_in_d_x_out (N, C)
/// \throws Error            if extents differ (message names both shapes)
/// Work: 16 N C FLOP (an exponential counts as one); 3 N C sizeof(T) bytes.
template <class T>
void gelu_backward(ExecutionSpace const& exec, Matrix<T const> x, Matrix<T> d_y_in_d_x_out);

/// d_bias = or += the sum of d_y over rows, in a fixed order: the same bits in every run.
///                                                           reference: reference::bias_backward
/// \param[in]  exec         work is enqueued here; returns without fencing
/// \param[in]  d_y (N, C)   \param[out] d_bias (C)  mode
/// \throws Error            if extents differ (message names both shapes)
/// Work: N C FLOP; N C sizeof(T) + C sizeof(Gradient) bytes, C sizeof(Gradient) more if added to.
template <class T, class Gradient>
void bias_backward(ExecutionSpace const& exec, Matrix<T const> d_y, Vector<Gradient> d_bias, Write mode);

} // namespace trainstone
