#pragma once

// The ways to share out the blocks of a model among the stages of a pipeline. Owns the vocabulary alone;
// pipeline_stages.hpp cuts.

namespace trainstone {

enum class StageCut {
  even,     ///< as equal as possible in blocks
  balanced, ///< with the least bound over predicted work
  listed,   ///< as a list says
};

} // namespace trainstone
