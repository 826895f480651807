#pragma once

// The measured idle time of a pipeline as a part of a result: its form in result.json, written and read.

#include "parallel/pipeline/pipeline_bubble.hpp"

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <optional>
#include <string>

namespace trainstone {

class JsonFile;

/// Of rank 0's pipeline, of the step with the median share of idle time.
struct PipelineInfo {
  std::string schedule;
  PipelineShape shape;
  std::int64_t steps = 0; ///< that were measured
  PipelineBubble bubble;
};

nlohmann::ordered_json pipeline_json(PipelineInfo const& info);

/// None if the result has none. \throws InputError if a value is not as pipeline_json() writes it
std::optional<PipelineInfo> read_pipeline(JsonFile const& file);

} // namespace trainstone
