#pragma once

// What a program computes on one rank: the FLOPs and kernels of its parts and losses, counted instruction by
// instruction. What the engine and the collectives start is counted apart (step_counts.hpp). Pure.

#include "model/work.hpp"
#include "parallel/plan/shard_plan.hpp"
#include "parallel/program/instruction.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace trainstone {

struct ComputedWork {
  ModelFlops flops;
  PerPhase<PhaseWork> work;
  std::uint64_t launches = 0; ///< with one that adds up the losses of a micro-batch
};

/// \param[in] trains  whether the segments are of a training, or of an evaluation
/// Complexity: O(instructions).
ComputedWork computed_work(std::vector<Segment> const& segments, ShardPlan const& plan, GptConfig const& model,
                           MicroBatchShape shape, GemmChoice const& gemm, bool trains);

/// All launches of one kernel, or of one product of the model.
struct ComputedKernel {
  std::string name; ///< of a product "qkv forward", else the kernel's label behind "trainstone::"
  Phase phase = Phase::other;
  std::uint64_t launches = 0;
  PhaseWork work = {};
};

/// The kernels of computed_work(), in the order of parts and passes. The one that adds up losses is not among them.
/// Complexity: O(instructions).
std::vector<ComputedKernel> computed_kernels(std::vector<Segment> const& segments, ShardPlan const& plan,
                                             GptConfig const& model, MicroBatchShape shape, GemmChoice const& gemm,
                                             bool trains);

} // namespace trainstone
