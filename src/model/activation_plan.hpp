#pragma once

// What the activations of one micro-batch will take: every tensor with its bytes, for plans, which need no Kokkos. The
// tensors are listed and bound in model/activations.cpp, by one description.

#include "core/memory_plan.hpp"
#include "model/config.hpp"

#include <vector>

namespace trainstone {

/// Rows of a micro-batch: `batch` sequences of `sequence` tokens.
struct MicroBatchShape {
  Index batch;
  Index sequence;
  Index rows() const { return batch * sequence; }
};

/// The activation plan: every tensor with its bytes, in arena order.
std::vector<PlannedTensor> activation_plan(GptConfig const& config, MicroBatchShape shape,
                                           Storage storage = Storage::fp32, GptOptions const& options = {});

} // namespace trainstone
