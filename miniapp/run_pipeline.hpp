#pragma once

// The idle time of a pipeline in the measured steps (bench.pipeline): the times of all its stages put together.

#include "run_setup.hpp"

#include "result/pipeline_info.hpp"

#include <optional>
#include <vector>

namespace trainstone {

/// Of the pipeline that rank 0 is in; other pipelines beside it are measured, but not shown. None if no step was
/// measured. Collective. \param[in] own  of this rank, by measured step
std::optional<PipelineInfo> measured_pipeline(PreparedRun const& run, std::vector<StageTimes> const& own,
                                              RankContext& context);

} // namespace trainstone
