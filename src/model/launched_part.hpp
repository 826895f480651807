#pragma once

// What the kernels of a part work on when they are launched (launched_kernels_impl.hpp). Included by gpt.cpp alone.

#include "model/gpt.hpp"

namespace trainstone::Impl {

/// Everything that a part's kernels work on.
struct LaunchedPart {
  ExecutionSpace const& exec;
  GptConfig const& config;
  GptOptions const& options;
  ParameterTable const& table;
  MicroBatchShape shape;
  Activations const& activations;
  Gemm& gemm;
  Part part;
  MicroBatch const& batch;
  LossMode mode = LossMode::training;      ///< of the loss
  ConstStoredVector parameters = {};       ///< of the part's unit
  trainstone::StoredVector gradients = {}; ///< of the part's unit, in backward
  trainstone::StoredVector looked_up = {}; ///< of the token table, where embed leaves its part apart
  Write write = Write::overwrite;          ///< of gradients
  ActivationBuffers buffers = {};          ///< the copies of activations
  std::optional<Index> chunk = {};         ///< of rows, of a loss that is split, and of its backward
  std::optional<Index> row_chunk = {};     ///< of rows of a sum over slices
};

} // namespace trainstone::Impl
