#pragma once

// What `explain pipeline` shows of a schedule: a grid of cells, as lectures draw it, with "wait" where a stage waits,
// and the figures beside their bound and closed forms; the same as JSON with the instructions of every stage; and a
// picture with a lane per stage. Pure functions.

#include "parallel/pipeline/pipeline_bound.hpp"
#include "parallel/pipeline/pipeline_formulas.hpp"
#include "parallel/pipeline/pipeline_search.hpp"

#include <optional>
#include <string>
#include <vector>

namespace trainstone {

struct PipelineExplanation {
  std::string name;    ///< of the schedule
  std::string meaning; ///< a sentence without its end
  PipelineProgram program = {};
  PipelinePrices prices = {};
  Ticks unit = 1; ///< ticks of a unit in which times are shown
  PipelineTimeline timeline = {};
  Ticks exposed = 0; ///< what messages add to the time
  Ticks bound = 0;
  PipelineTimeParts parts = {};
  std::optional<PipelineFormulas> formulas = {}; ///< if stages are equal and the schedule has them
};

/// A program that is proved and played. \throws Error if it is wrong
PipelineExplanation explain_program(std::string name, std::string meaning, PipelineProgram program,
                                    PipelinePrices const& prices, Ticks unit);

/// The order that a search has found, beside a schedule. \param[in] slots  of a stage; 0: any number
PipelineExplanation explain_search(PipelineExplanation const& schedule, PipelineSearchResult const& found, Index slots);

std::string pipeline_text(PipelineExplanation const& explanation);

/// The figures of one pipeline, for a line of a table.
std::vector<std::string> pipeline_row(PipelineExplanation const& explanation);
/// Lines of the same schedule, under what the figures are. \param[in] any  of the explained pipelines
std::string pipeline_table(PipelineExplanation const& any, std::vector<std::vector<std::string>> rows);

/// One line. Times are in ticks; `ticks_per_unit` says how many are a unit.
std::string pipeline_json(PipelineExplanation const& explanation);

/// A whole SVG file: a lane per stage, below it the slots in use; a line per message.
std::string pipeline_svg(PipelineExplanation const& explanation);

/// "1f1b on 4 stages, 8 micro-batches"
std::string pipeline_title(PipelineExplanation const& explanation);

/// "time 33, bound 33, gap 0 %": for titles.
std::string pipeline_figures(PipelineExplanation const& explanation);

} // namespace trainstone
