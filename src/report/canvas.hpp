#pragma once

// The canvas of plots: the frame with title, axes, grid and legend, and the looks of series. Part of plot.hpp.

#include "report/axis.hpp"

#include <optional>
#include <string>
#include <vector>

namespace trainstone::Impl {

/// How a series looks; the same number looks the same in every plot.
struct Look {
  char const* color;
  char const* dash; ///< of lines; empty: solid
  int mark;         ///< circle, square, triangle ...
  int stripes;      ///< of bars: 0 none, 1 horizontal, 2 vertical
};
Look look_of(int number);

/// A mark centred on a point.
std::string mark_at(double x, double y, Look const& look);
/// A rectangle with the look's stripes.
std::string bar_at(double x, double y, double width, double height, Look const& look);
/// A line through points, given as the data of a path. \param[in] dash  empty: solid
std::string line_along(std::string const& data, char const* color, char const* dash);

/// The sample that the legend shows beside a name.
enum class Swatch { line, mark, line_and_mark, bar, band };

struct LegendEntry {
  std::string name;
  Swatch swatch = Swatch::line;
  Look look{};
};

/// The color of shaded parts.
inline constexpr char const* band_color = "#e5e7eb";

class Canvas {
public:
  /// Lays out the axes. \param[in] x_values, y_values  all that will be drawn \param[in] bars  stand on the x axis
  Canvas(std::string title, PlotAxis const& x, std::vector<double> const& x_values, PlotAxis const& y,
         std::vector<double> const& y_values, bool bars);

  double x(double value) const { return m_x->at(value); }
  double y(double value) const { return m_y->at(value); }
  double left() const { return m_left; }
  double right() const { return m_right; }
  double top() const;
  double bottom() const;

  void add(std::string const& drawing) { m_body += drawing; }
  /// A text in the middle of the plot.
  void say(std::string const& text);
  std::string finished(std::vector<LegendEntry> const& legend) const;

private:
  std::string axes() const;
  /// Moves `right` beyond the longest name, and `bottom` below what it draws.
  std::string legend_below(std::vector<LegendEntry> const& entries, double& right, double& bottom) const;

  std::string m_title, m_x_label, m_y_label;
  bool m_bars;
  double m_left = 0, m_right = 0, m_width = 0;
  std::optional<LaidAxis> m_x, m_y;
  std::string m_body;
};

} // namespace trainstone::Impl
