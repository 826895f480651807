#pragma once

// What each stage of a pipeline has, needs and sends: a table of `estimate`.

#include "train/plan/run_plan.hpp"

#include <string>

namespace trainstone {

/// A line per stage, of its first rank. Empty without a pipeline.
std::string stages_table(ResolvedRun const& run);

/// FLOPs of a step that all stages of a line execute together, or those of a rank without a pipeline.
std::uint64_t executed_flops(ResolvedRun const& run);

} // namespace trainstone
