#pragma once

// `estimate --lecture pipeline`: the grids of slides with "wait" where a stage waits, and shares of waiting, messages
// and what is kept, closed forms beside this program's simulation. Owns the text only; the figures are
// lectures/taught_pipeline.hpp's.

#include "lectures/taught_pipeline.hpp"

#include <string>

namespace trainstone {

/// All tables, lines with their ends.
std::string lecture_pipeline_text(TaughtPipeline const& lecture);

} // namespace trainstone
