#pragma once

// The run of a result, resolved again from what its file records: keys, places of ranks, and what was chosen by
// measurement. Owns the rule which results this build can plan again. Pure.

#include "result/result_file.hpp"
#include "train/plan/resolved_run.hpp"

namespace trainstone {

/// \throws InputError if the file's keys are not this version's, if its workers did not wait for each other, or if the
///         run computed where this build does not
ResolvedRun recorded_run(ResultFile const& file);

} // namespace trainstone
