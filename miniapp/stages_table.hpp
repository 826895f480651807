#pragma once

// What each stage of a pipeline has, needs and sends: a table of `estimate`.

#include "train/plan/run_plan.hpp"

#include <string>

namespace trainstone {

/// A line per stage, of its first rank. Empty without a pipeline.
std::string stages_table(ResolvedRun const& run);

} // namespace trainstone
