#pragma once

// What the kernels of parts write and read, by their description (part_kernels.hpp): the activations, which the plan of
// memory holds, those that are kept for backward, and the gradients of parameters by piece of backward. Plain values.

#include "model/activation_plan.hpp"
#include "model/part.hpp"

#include <set>
#include <vector>

namespace trainstone {

/// The activations that a training of one micro-batch writes. Those of a block stand for all blocks.
std::set<Activation> activations_written(GptOptions const& options);

/// Of these, the ones that the part's forward writes and that backward reads: memory that waits for backward.
std::set<Activation> kept_for_backward(PartKind kind, GptOptions const& options);

/// By piece of the part's backward: the tensors whose gradients it writes.
std::vector<std::vector<Tensor>> gradients_written(PartKind kind);

} // namespace trainstone
