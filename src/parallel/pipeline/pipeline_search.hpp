#pragma once

// The fastest order of a pipeline with one chunk per stage, for stages that may differ and a limit of slots. Branch and
// bound over all orders whose micro-batches ascend in both directions. The search stops early where an order reaches
// the bounds of pipeline_bound.hpp, and says if it was cut off. Messages cost nothing in the search, and every chunk
// may keep what it sends: so what it proves holds for all buffers. Pure.

#include "parallel/pipeline/pipeline_timeline.hpp"

#include <vector>

namespace trainstone {

struct PipelineSearchLimits {
  Index slots = 0;           ///< of a stage; 0: any number
  Index most_steps = 200000; ///< of the search: an operation is put behind others
};

struct PipelineSearchResult {
  std::vector<StageOrder> orders = {}; ///< by stage
  Ticks time = 0;                      ///< that its program takes, without messages
  Ticks least = 0;                     ///< no order within these slots takes less: proved by the bound or by the search
  bool cut_off = false;                ///< the search has ended at its limit, so faster orders may exist
  Index steps = 0;

  constexpr bool is_best() const { return time == least; }
};

/// \param[in] prices  of one chunk per stage; backward includes `weights`
/// Complexity: exponential, up to limits.most_steps x stages.
/// \throws InputError if there are several chunks, or slots are negative
PipelineSearchResult search_pipeline_order(PipelineShape const& shape, PipelinePrices const& prices,
                                           PipelineSearchLimits const& limits = {});

} // namespace trainstone
