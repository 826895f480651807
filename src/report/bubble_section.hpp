#pragma once

// The measured idle time of a pipeline, for people: lines at the end of a run, and a section of the report.

#include "report/page.hpp"
#include "result/pipeline_info.hpp"

#include <string>

namespace trainstone {

/// Lines, each with its end: the share and the ratio of idle time beside the closed form and the simulation, and the
/// sum rule.
std::string bubble_lines(PipelineInfo const& info);

/// A heading and tables of the same.
Page bubble_section(PipelineInfo const& info);

} // namespace trainstone
