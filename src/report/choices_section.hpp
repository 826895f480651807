#pragma once

// The choices of a sweep in a report: a table of them, and their rates as bars. Pure functions.

#include "report/page.hpp"
#include "report/scaling.hpp"

#include <string>
#include <vector>

namespace trainstone {

/// Counts the choices of a sweep from 1, in the order of its points. For results of the study alone.
CellNumber number_of_choice(ReportedStudy const& reported, ReportInput const& input);

/// Of every line a table and a figure. Steps are compared with the first choice of the line.
/// \param[in] name   of the study: with it the figures' names begin and their titles end
/// \param[in] lines  whose cells are numbers of choices
Page choices_section(std::string const& name, Study const& study, std::vector<ScalingLine> const& lines);

} // namespace trainstone
