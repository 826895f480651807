#pragma once

// The order of a pipeline's stage as instructions of a step: chunks become parts, and messages become sends, receives
// and waits. Owns this translation alone: which operation and which message comes when, and in which buffers, is the
// stage's program (parallel/pipeline/stage_program.hpp). Pure.

#include "parallel/program/passes.hpp"

namespace trainstone {

/// Of all micro-batches of the program. Where a chunk ends the model, its forward turns round in the head.
/// Complexity: O(operations x parts).
Instructions pipeline_order(StageProgram const& program, PipelinePlan const& pipeline, PartTable const& parts,
                            bool trains);

} // namespace trainstone
