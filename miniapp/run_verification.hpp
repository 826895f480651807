#pragma once

// The checks that every run makes of itself; a figure of merit is printed only when all of them pass.

#include "commands.hpp"

#include "comm/counters.hpp"
#include "core/counters.hpp"
#include "core/memory.hpp"
#include "train/check.hpp"
#include "train/run_plan.hpp"
#include "train/trainer.hpp"

#include <vector>

namespace trainstone {

/// What was counted during the training, and how much of it there was.
struct CountedRun {
  std::int64_t steps = 0;
  std::int64_t validations = 0;
  std::int64_t validation_batches = 0; ///< global batches of each
  Counters kernels;
  CommCounters communication;
  CategoryBytes memory; ///< the ledger's high water
};

/// Integer-valued sums over the ranks come out exactly, with blocks of every kind. Collective; before the training.
Check check_collectives(Machinery& machinery, Algorithm all_reduce);

/// As many ranks as the launcher or the batch system was asked for.
Check check_launch(Machinery const& machinery);

/// The parameters have the same bits on all ranks. Collective.
Check check_replicas(Machinery& machinery, ModelState& state);

/// Counted and predicted agree with ==, on every rank. Collective.
Check check_memory(Machinery& machinery, RunPlan const& plan, CountedRun const& counted);
Check check_messages(Machinery& machinery, RunPlan const& plan, CountedRun const& counted);
Check check_flops(Machinery& machinery, RunPlan const& plan, CountedRun const& counted);

} // namespace trainstone
