#pragma once

// The AdamW update of a range of parameters, in one pass over memory. Knows nothing of schedules, clipping or groups:
// the caller hands over the numbers of this step.
// Source: Decoupled Weight Decay Regularization, arXiv:1711.05101.

#include "core/views.hpp"

#include <cstdint>

namespace trainstone {

/// What one step of AdamW needs beside the tensors.
struct AdamwStep {
  float learning_rate;
  float beta1;
  float beta2;
  float epsilon; ///< outside the square root
  float weight_decay;
  float gradient_scale; ///< clip factor and inverse loss scale, multiplied
  std::int64_t step;    ///< from 1; for the bias correction
};

/// g = gradient * gradient_scale; m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g^2;
/// parameter -= lr (m / (1 - b1^step) / (sqrt(v / (1 - b2^step)) + eps) + decay * parameter).
///                                                           reference: reference::adamw_update
/// \param[in]     exec          work is enqueued here; returns without fencing
/// \param[in]     gradient (n)  \param[in,out] parameter, m, v (n)
/// \param[in]     step          step.step >= 1
/// \throws Error                if extents differ (message names both shapes)
/// Work: 15 n FLOP; 3 n sizeof(T) + 16 n bytes.
template <class T>
void adamw_update(ExecutionSpace const& exec, Vector<T const> gradient, Vector<T> parameter, Vector<float> m,
                  Vector<float> v, AdamwStep const& step);

} // namespace trainstone
