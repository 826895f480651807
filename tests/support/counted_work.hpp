#pragma once

// The operations and bytes that kernels of steps declared, against the plan.

#include "core/counters.hpp"
#include "train/plan/step_prediction.hpp"

#include <catch2/catch_test_macros.hpp>

#include <cstdint>

namespace trainstone::test {

/// Of so many steps and of evaluations of so many micro-batches, since counters() were cleared.
inline void check_work(RunPlan const& plan, OptimizerConfig const& optimizer, std::uint64_t steps,
                       std::uint64_t evaluated) {
  for (Phase const phase : {Phase::gemm, Phase::attention}) {
    PhaseWork const &step = plan.step_work[phase], &evaluation = plan.evaluation_work[phase];
    CHECK(counters().flops[phase] == steps * step.flops + evaluated * evaluation.flops);
    CHECK(counters().bytes[phase] == steps * step.bytes + evaluated * evaluation.bytes);
  }
  PhaseWork const update = update_work(plan, optimizer);
  CHECK(counters().flops[Phase::optimizer] == steps * update.flops);
  CHECK(counters().bytes[Phase::optimizer] == steps * update.bytes);
}

} // namespace trainstone::test
