#pragma once

// A predicted timeline of a step, and a measured one below it, as text and as a picture. One line of the text per
// instruction. The picture has two lanes for each class of ranks: what its core does, and which collectives are under
// way. The measured step has the same two lanes of each class, to the same scale. Pure functions.

#include "parallel/plan/shard_plan.hpp"
#include "parallel/program/step_timeline.hpp"
#include "report/measured_step.hpp"

#include <optional>
#include <string>
#include <vector>

namespace trainstone {

/// "predicted step 98.2 ms: 90.1 ms of computation, 8 ms of communication that nothing hides, 100 us of waits for other
/// ranks"; then by act the communication that is not hidden. Lines, each with its end.
std::string timeline_summary(StepTimeline const& timeline);

/// The summary, then for every class of ranks its instructions: begin, duration, what. A wait also says when what it
/// waits for was started. \param[in] stages  by stage, the plan that gives the instructions their names
/// \param[in] measured  stands beside what was predicted, with a list of the collectives of every class
std::string timeline_text(std::string const& title, StepTimeline const& timeline, std::vector<ShardPlan> const& stages,
                          std::optional<MeasuredStep> const& measured = {});

/// A whole SVG file, which may also stand in a page: its style is its own.
/// \param[in] measured  as above; two more lanes of every class
std::string timeline_svg(std::string const& title, StepTimeline const& timeline, std::vector<ShardPlan> const& stages,
                         std::optional<MeasuredStep> const& measured = {});

/// "rank 1 and 2 ranks like it", "rank 0", "stage 1: rank 2": a class. \param[in] stages  of the timeline
std::string class_name(RankClass const& ranks, Rank stages);

} // namespace trainstone
