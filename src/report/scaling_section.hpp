#pragma once

// Several results in a report: the table of all, what scales how, a study's points and its model.

#include "report/page.hpp"
#include "report/report_input.hpp"

namespace trainstone {

/// A row per result: status, rate with the name that it may have, time of a step, memory.
Table overview_table(std::vector<NamedResult> const& results);

/// Scaling of results that belong to no study. Empty if all ran on one number of ranks.
Page scaling_section(ReportInput const& input);

/// A study: its points, missing ones included, scaling, phases, predicted and measured times, model; of a sweep its
/// choices.
Page study_section(ReportedStudy const& reported, ReportInput const& input);

} // namespace trainstone
