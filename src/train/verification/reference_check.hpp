#pragma once

// Comparison with a reference: a model, a batch with its logits, loss and gradients, and ten steps of training, all
// computed by an independent program in float64 and stored in llm.c's formats and JSON. Owns the bounds. Runs the very
// Trainer that `run` uses, on any number of data ranks that divides the batch. On stages, each sample is a micro-batch.

#include "comm/execution/communicator.hpp"
#include "core/views.hpp"
#include "train/plan/run_config.hpp"
#include "train/verification/check.hpp"

#include <string>
#include <vector>

namespace trainstone {

struct ReferenceFiles {
  std::string model;  ///< llm.c model, fp32
  std::string state;  ///< llm.c debug state: the batch, its logits, loss and gradients
  std::string losses; ///< JSON: {"adamw": {beta1, beta2, eps}, "recipes": {NAME: {weight_decay, decay, clip, lr,
                      ///< losses, grad_norms}}}; empty = not compared
};

/// One compared tensor, loss or curve.
struct ReferenceRow {
  std::string name;
  double max_absolute = 0;
  double max_relative = 0; ///< to the largest element of the reference tensor, or to the single reference value
  double bound = 0;
  bool relative = false; ///< which of the two the bound is for
  bool passed = false;
};

/// Bounds for fp32. PyTorch in fp32 stays within a quarter of each.
inline constexpr double logits_bound = 8e-6;   ///< absolute
inline constexpr double loss_bound = 2e-6;     ///< absolute
inline constexpr double gradient_bound = 8e-6; ///< relative to the tensor's largest element
inline constexpr double curve_bound = 4e-6;    ///< relative: losses and gradient norms of ten steps

/// Reads the files and checks that they belong together and that `ranks` can run the model as chosen, without
/// allocating for a model. \throws InputError naming file and byte offset, or a key with its legal values
void check_reference_files(ReferenceFiles const& files, RunConfig const& choices, Rank ranks);

/// All rows, the same on every rank. Collective.
/// \throws InputError as check_reference_files does
std::vector<ReferenceRow> compare_with_reference(ExecutionSpace const& exec, Communicator& communicator,
                                                 ReferenceFiles const& files, RunConfig const& choices);

} // namespace trainstone
