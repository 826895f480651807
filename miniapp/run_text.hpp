#pragma once

// What a run prints before its first step and after its last one. The first rank prints it.

#include "run_setup.hpp"

#include "result/result.hpp"

#include <string>

namespace trainstone {

/// The header of the run, the amounts that are predicted, and notes about everything that is not as usual.
/// \param[in] predicted  busiest_rank()
void print_start(PreparedRun const& run, RankContext const& context, WorkAmounts const& predicted);

/// From kernels to the line RESULT. \param[in] json_path  of the result that is written
void print_end(Result const& result, std::string const& json_path);

} // namespace trainstone
