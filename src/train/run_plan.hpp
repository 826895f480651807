#pragma once

// What one rank of a run will allocate, send and compute, as a value: `estimate` prints it, the Trainer allocates from
// it, the verification compares it with what was counted, with ==. Computed from the configuration alone, before
// anything is allocated and without MPI.

#include "comm/counters.hpp"
#include "core/memory.hpp"
#include "model/parameter_table.hpp"
#include "model/work.hpp"
#include "parallel/gradient_reduction.hpp"
#include "train/run_config.hpp"

#include <string>
#include <vector>

namespace trainstone {

struct MemoryItem {
  MemoryCategory category;
  std::string name;
  std::uint64_t bytes;
};

struct RunPlan {
  ParameterTable table;
  MicroBatchShape shape;
  Rank rank;
  Rank ranks;
  GradientReduction reduction;
  GemmProvider gemm;  ///< resolved
  Index accumulation; ///< micro-batches per rank and step

  std::vector<MemoryItem> memory;
  Traffic gradients;           ///< per step, sent by the rank
  Traffic step_control;        ///< per step: the loss
  Traffic validation_control;  ///< per validation: its loss
  ModelFlops step_flops;       ///< per step and rank
  ModelFlops evaluation_flops; ///< per micro-batch of a validation

  /// Sums of `memory`.
  CategoryBytes memory_bytes() const;
};

/// \param[in] config   resolved: all three batch numbers are set     \param[in] rank of topology.ranks()
/// \throws InputError if the model, the all-reduce or the GEMM provider is not possible
RunPlan plan_run(RunConfig const& config, Rank rank, Topology const& topology);
/// The same with all ranks on one node.
RunPlan plan_run(RunConfig const& config, Rank rank, Rank ranks);

/// What Trainer takes from the arenas of its buffers and its data, in order.
std::vector<PlannedTensor> buffer_plan(RunPlan const& plan);
std::vector<PlannedTensor> data_plan(MicroBatchShape shape);

} // namespace trainstone
