#pragma once

// From a finished training to what is reported: times merged over ranks, amounts predicted and counted, rates, the
// speed floor. Does not print.

#include "run_setup.hpp"
#include "run_verification.hpp"

#include "report/result.hpp"

#include <vector>

namespace trainstone {

/// What training did, in the order in which it happened.
struct Training {
  std::vector<StepReport> samples;
  CountedRun counted;
  bool stopped_early = false;
};

/// Rates of all ranks together, measured by all at once. Collective.
PeakInfo measure_peaks(Machinery& machinery, GemmProvider provider);

/// What is known before the training.
Result begin_result(PreparedRun const& run, Machinery const& machinery, PeakInfo const& peaks);

/// Adds what the training gave: samples with times merged over the ranks, amounts, rates. Collective.
void finish_result(Result& result, PreparedRun const& run, Training training, Machinery& machinery);

/// Amounts per step and rank, predicted.
WorkAmounts predicted_amounts(RunPlan const& plan);

} // namespace trainstone
