#pragma once

// The pipelines that tests go through: every schedule, and every legal shape of up to 8 stages, 32 micro-batches and 4
// chunks.

#include "parallel/pipeline/stage_program.hpp"

namespace trainstone {

/// Calls visit(schedule, shape).
template <class Visit>
void for_each_pipeline(Visit const& visit) {
  for (PipelineSchedule const& schedule : pipeline_schedules())
    for (Index stages = 1; stages <= 8; ++stages)
      for (Index micro_batches = 1; micro_batches <= 32; ++micro_batches)
        for (Index chunks = 1; chunks <= 4; ++chunks) {
          PipelineShape const shape{stages, micro_batches, chunks};
          if (shape_problem(schedule, shape).empty()) visit(schedule, shape);
        }
}

inline PipelineProgram program_of(std::string_view schedule, PipelineShape const& shape,
                                  MessagePolicy const& policy = {}) {
  return make_pipeline_program(shape, make_pipeline_order(parse_pipeline_schedule(schedule), shape), policy);
}

} // namespace trainstone
