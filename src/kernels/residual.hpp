#pragma once

// The residual add on its own, where no layer norm follows in the same part. With one: residual_layernorm_forward.

#include "core/views.hpp"

namespace trainstone {

/// sum = x + branch + branch_bias, per row.                  reference: reference::residual_forward
/// \param[in]  exec        work is enqueued here; returns without fencing
/// \param[in]  x, branch (N, C)              \param[in] branch_bias (C), or empty: none
/// \param[out] sum (N, C)  overwritten; may alias x or branch
/// \throws Error           if extents differ (message names both shapes)
/// Work: 2 N C FLOP; 3 N C sizeof(T) + C sizeof(T) bytes.
template <class T>
void residual_forward(ExecutionSpace const& exec, Matrix<T const> x, Matrix<T const> branch,
                      Vector<T const> branch_bias, Matrix<T> sum);

} // namespace trainstone
