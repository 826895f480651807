#pragma once

// Plots over the number of ranks. Pure functions.

#include "report/page.hpp"
#include "report/scaling.hpp"

#include <string>
#include <vector>

namespace trainstone {

/// Times of a step that are not measured, by ranks.
struct ExpectedTimes {
  std::string name; ///< in the legend
  std::vector<std::pair<std::int64_t, double>> seconds;
};

/// Rates with the ideal line, efficiency where a line has several numbers of ranks, time of a step beside what was
/// expected, phases.
/// \param[in] study  its name, with which their names begin and titles end; empty: results of no study
/// \param[in] flops  the lines' rates are FLOP/s
std::vector<Figure> scaling_figures(std::string const& study, std::vector<ScalingLine> const& lines, bool flops,
                                    std::vector<ExpectedTimes> const& expected);

} // namespace trainstone
