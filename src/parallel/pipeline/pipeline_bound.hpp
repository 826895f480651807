#pragma once

// The least time that any order of a pipeline's operations can take, and where the time of a timeline goes. Messages
// cost nothing in the bound. For trainings, not for evaluations. Pure functions.

#include "parallel/pipeline/pipeline_timeline.hpp"

namespace trainstone {

/// The certificate. A stage i begins when its first micro-batch has gone forward through the stages before it. Then it
/// computes all its micro-batches. Then the last one goes backward through the stages before it. So an order takes at
/// least
///   max over i of (sum over l < i of f_l) + m (f_i + b_i) + (sum over l < i of b_l),
/// where f_l and b_l before and after m (...) are of the first chunk. If `weights` are apart, the largest of this
/// without weights but for the last ones of stage 0, and of (sum over l < i of f_l) + m (f_i + b_i + w_i).
/// Complexity: O(stages x chunks).
Ticks pipeline_bound(PipelineShape const& shape, bool splits_backward, PipelinePrices const& prices);

/// The same for stages with few slots, and one chunk per stage. A micro-batch takes a slot of stage i at least while it
/// goes forward and backward through this stage and those after it: r_i = sum over l >= i of f_l + b_l. With K slots,
/// some slot is taken by ceil(m / K) micro-batches. So an order takes at least
///   max over i of (sum over l < i of f_l) + ceil(m / K) r_i + (sum over l < i of b_l).
/// Complexity: O(stages). \param[in] slots  of every stage, at least 1
Ticks slots_bound(PipelineShape const& shape, PipelinePrices const& prices, Index slots);

/// (time - bound) / bound in percent.
double gap_percent(Ticks time, Ticks bound);

/// Where the time of all stages goes: stages x time = the sum of all terms. `imbalance` may be negative. Equal stages
/// have not the least bound: with two micro-batches, stages of loads 2 and 1 need 4, two stages of 1.5 need 4.5.
struct PipelineTimeParts {
  double time = 0;        ///< stages x time
  double busy = 0;        ///< sum over stages of what they compute
  double unavoidable = 0; ///< of the bound, if all stages had the mean times
  double imbalance = 0;   ///< what the bound of these stages is larger
  double order = 0;       ///< what this order takes longer than the bound, without messages
  double messages = 0;    ///< what messages add
  double rest = 0;        ///< measured, and in no term
};

/// Of a simulated pipeline; nothing is left as rest. Complexity: O(instructions).
PipelineTimeParts time_parts(PipelineProgram const& program, PipelinePrices const& prices);

/// Of a measured one. \param[in] time  measured, in ticks, of one stage; \param[in] prices  measured means
PipelineTimeParts time_parts(PipelineProgram const& program, PipelinePrices const& prices, double time);

} // namespace trainstone
