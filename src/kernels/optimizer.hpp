#pragma once

// The optimizers: AdamW, Adam, and gradient descent with or without momentum, each on a range of elements in one pass
// over memory. Parameters are updated in fp32, in their master copy, and written rounded to the type that the model
// computes with; where that is fp32 the two are one vector, which is read and written once. Knows nothing of schedules,
// clipping, groups or ranks: the caller hands over the numbers of this step. If these name pieces of the vectors, an n
// of work is what the pieces have. Sources: Adam: A Method for Stochastic Optimization, arXiv:1412.6980; Decoupled
// Weight Decay Regularization, arXiv:1711.05101.

#include "core/types.hpp"
#include "core/views.hpp"
#include "kernels/update_piece.hpp"

#include <cstdint>
#include <span>

namespace trainstone {

/// What one step of AdamW or Adam needs beside the tensors.
struct AdamStep {
  float learning_rate;
  float beta1;
  float beta2;
  float epsilon; ///< outside the square root
  float weight_decay;
  float gradient_scale;                     ///< clip factor and inverse loss scale, multiplied
  std::int64_t step;                        ///< from 1; for the bias correction
  std::span<UpdatePiece const> pieces = {}; ///< that change, in order; none: all elements, which decay
};

/// What one step of gradient descent needs beside the tensors.
struct SgdStep {
  float learning_rate;
  float momentum; ///< 0 = none
  float weight_decay;
  float gradient_scale;                     ///< clip factor and inverse loss scale, multiplied
  std::span<UpdatePiece const> pieces = {}; ///< that change, in order; none: all elements, which decay
};

/// AdamW, whose decay goes past the moments: g = gradient * gradient_scale; m = b1 m + (1 - b1) g;
/// v = b2 v + (1 - b2) g^2; master -= lr (m / (1 - b1^step) / (sqrt(v / (1 - b2^step)) + eps) + decay * master);
/// parameter = master, rounded to nearest.                   reference: reference::adamw_update
/// \param[in]     exec          work is enqueued here; returns without fencing
/// \param[in]     gradient (n)  \param[in,out] master, m, v (n)
/// \param[out]    parameter (n) overwritten; of fp32 it is `master`
/// \param[in]     step          step.step >= 1
/// \throws Error                if extents differ (message names both shapes), or if an fp32 `parameter` is not
/// `master` Work: 17 n FLOP; n sizeof(Gradient) + 24 n bytes, and n sizeof(Parameter) unless that is fp32.
template <class Gradient, class Parameter>
void adamw_update(ExecutionSpace const& exec, Vector<Gradient const> gradient, Vector<float> master, Vector<float> m,
                  Vector<float> v, Vector<Parameter> parameter, AdamStep const& step);

/// Adam with L2 regularisation: the same with g = gradient * gradient_scale + decay * master, and no decay but that.
///                                                           reference: reference::adam_update
template <class Gradient, class Parameter>
void adam_update(ExecutionSpace const& exec, Vector<Gradient const> gradient, Vector<float> master, Vector<float> m,
                 Vector<float> v, Vector<Parameter> parameter, AdamStep const& step);

/// Gradient descent with L2 regularisation: g = gradient * gradient_scale + decay * master; velocity = momentum *
/// velocity + g; master -= lr velocity; parameter = master, rounded to nearest. Without momentum there is no velocity,
/// and master -= lr g.                                       reference: reference::sgd_update
/// \param[in]     exec          work is enqueued here; returns without fencing
/// \param[in]     gradient (n)  \param[in,out] master (n)
/// \param[in,out] velocity (n)  zeros before the first step; (0) if step.momentum is 0
/// \param[out]    parameter (n) overwritten; of fp32 it is `master`
/// \throws Error                as adamw_update
/// Work: 5 n FLOP, with momentum 7 n; n sizeof(Gradient) + 8 n bytes, with momentum 8 n more, and n sizeof(Parameter)
/// unless that is fp32.
template <class Gradient, class Parameter>
void sgd_update(ExecutionSpace const& exec, Vector<Gradient const> gradient, Vector<float> master,
                Vector<float> velocity, Vector<Parameter> parameter, SgdStep const& step);

} // namespace trainstone
