#pragma once

// One step of the configured optimizer on a range of elements. Turns the values of a deck into calls of
// kernels/optimizer.hpp. Owns nothing. Does not know which ranges exist or who holds them.

#include "core/stored.hpp"
#include "kernels/update_piece.hpp"
#include "parallel/plan/config.hpp"

#include <span>

namespace trainstone {

/// The numbers that are the same for all elements of a step.
struct UpdateNumbers {
  double learning_rate;
  double gradient_scale; ///< clip factor and inverse loss scale, multiplied
  std::int64_t step;     ///< from 1
};

/// \param[in]     exec      work is enqueued here; returns without fencing
/// \param[in]     pieces    that change, at most most_update_pieces; none: all elements, which decay
/// \param[in]     gradient  stored as the parameters are, or in fp32
/// \param[in,out] master, parameter as for the kernels
/// \param[in,out] moments   optimizer.moments() of them: m and v, the velocity, or none
/// \throws Error            if there are more or fewer moments, or extents or types differ
void update_parameters(ExecutionSpace const& exec, OptimizerConfig const& optimizer, UpdateNumbers const& numbers,
                       std::span<UpdatePiece const> pieces, ConstStoredVector gradient, Vector<float> master,
                       std::span<Vector<float> const> moments, StoredVector parameter);

} // namespace trainstone
