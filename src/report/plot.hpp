#pragma once

// Plots as SVG: lines, points with error bars, bars side by side or piled up, on linear or logarithmic axes with round
// ticks, a title and a legend. Owns how they look: white ground, colours that colour-blind people can tell apart, and
// for print every series also a mark, a dash or a hatch of its own. Pure functions. Promises pictures without script,
// style sheet or reference to anything outside, so that they can stand in a page as they are.

#include "report/axis.hpp"

#include <string>
#include <vector>

namespace trainstone {

enum class Drawn { line, points, line_and_points, dashes };

/// Points in the order in which a line goes through them.
struct Series {
  std::string name; ///< in the legend
  Drawn drawn = Drawn::line;
  std::vector<double> x = {}, y = {};
  std::vector<double> low = {}, high = {}; ///< ends of error bars; empty: none
  int look = -1;                           ///< number of colour, mark and dash; below 0: that of its place
};

/// A look that is black: of what the others are compared with.
inline constexpr int reference_look = 6;

/// A part of the x axis that is shaded.
struct Band {
  std::string name;
  double from = 0, to = 0;
};

struct Plot {
  std::string title;
  PlotAxis x, y;
  std::vector<Series> series;
  std::vector<Band> bands = {};
};

/// Values of one name, one per category.
struct BarSeries {
  std::string name;
  std::vector<double> values;
  int look = -1;
};

struct BarPlot {
  std::string title;
  PlotAxis x; ///< its categories
  PlotAxis y;
  std::vector<BarSeries> series;
  bool stacked = true; ///< else side by side
};

/// Series without points are left out; without any the picture says so.
/// \throws Error  naming series and index, if a number is not finite, not above 0 on a log axis, or the arrays of a
/// series
///                are of different length
std::string plot_svg(Plot const& plot);
/// \throws Error if there is not one value per category, or one is below 0 or not finite
std::string plot_svg(BarPlot const& plot);

/// Fewer points that draw the same line: of each of `parts` runs of equal length the first, least, largest and last
/// one. The series as it is if it has no more than 4 x parts, or has error bars.
Series thinned(Series series, std::size_t parts);

} // namespace trainstone
