#include "report/plot.hpp"

#include "core/error.hpp"
#include "report/canvas.hpp"

#include <algorithm>
#include <cmath>

namespace trainstone {

namespace {

using namespace Impl;

constexpr std::size_t most_marks = 120; // more points become dots

void require_drawable(Series const& series, PlotAxis const& x, PlotAxis const& y) {
  std::size_t const size = series.x.size();
  TRAINSTONE_REQUIRE(series.y.size() == size && series.low.size() == series.high.size() &&
                         (series.low.empty() || series.low.size() == size),
                     "series \"{}\" of {} x, {} y, {} low, {} high", series.name, size, series.y.size(),
                     series.low.size(), series.high.size());
  auto const check = [&](std::vector<double> const& values, PlotAxis const& axis, char const* what) {
    for (std::size_t i = 0; i < values.size(); ++i)
      TRAINSTONE_REQUIRE(std::isfinite(values[i]) && (axis.scale == Scale::linear || values[i] > 0),
                         "series \"{}\": {}[{}] is {}, axis \"{}\" cannot show it", series.name, what, i, values[i],
                         axis.label);
  };
  check(series.x, x, "x");
  check(series.y, y, "y");
  check(series.low, y, "low");
  check(series.high, y, "high");
}

Look look_at_place(int look, std::size_t place) { return look_of(look >= 0 ? look : static_cast<int>(place)); }

Swatch swatch_of(Drawn drawn) {
  switch (drawn) {
  case Drawn::points: return Swatch::mark;
  case Drawn::line_and_points: return Swatch::line_and_mark;
  default: return Swatch::line;
  }
}

std::string error_bars(Canvas const& canvas, Series const& series, Look const& look) {
  std::string data;
  for (std::size_t i = 0; i < series.low.size(); ++i) {
    double const x = canvas.x(series.x[i]), low = canvas.y(series.low[i]), high = canvas.y(series.high[i]);
    data += fmt::format("M{:.1f},{:.1f}V{:.1f}M{:.1f},{:.1f}h8M{:.1f},{:.1f}h8", x, low, high, x - 4, low, x - 4, high);
  }
  return data.empty() ? data : line_along(data, look.color, "");
}

std::string drawing(Canvas const& canvas, Series const& series, Look const& look) {
  std::string text = error_bars(canvas, series, look), data, marks;
  bool const many = series.x.size() > most_marks;
  bool const points = series.drawn == Drawn::points || series.drawn == Drawn::line_and_points;
  for (std::size_t i = 0; i < series.x.size(); ++i) {
    double const x = canvas.x(series.x[i]), y = canvas.y(series.y[i]);
    bool const dot = series.drawn == Drawn::points && many;
    data += fmt::format("{}{:.1f},{:.1f}{}", i == 0 || dot ? 'M' : 'L', x, y, dot ? "h0" : "");
    if (points && !many) marks += mark_at(x, y, look);
  }
  if (series.drawn == Drawn::points)
    return text + (many ? fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2.4\" "
                                      "stroke-linecap=\"round\"/>\n",
                                      data, look.color)
                        : marks);
  return text + line_along(data, look.color, series.drawn == Drawn::dashes && !*look.dash ? "6 4" : look.dash) + marks;
}

std::string shading(Canvas const& canvas, Band const& band) {
  double const from = std::clamp(canvas.x(band.from), canvas.left(), canvas.right());
  double const to = std::clamp(canvas.x(band.to), canvas.left(), canvas.right());
  return fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"{}\" "
                     "fill-opacity=\"0.7\"/>\n",
                     from, canvas.top(), to - from, canvas.bottom() - canvas.top(), band_color);
}

void append(std::vector<double>& all, std::vector<double> const& more) {
  all.insert(all.end(), more.begin(), more.end());
}

/// The height that all bars need.
std::vector<double> heights(BarPlot const& plot) {
  std::vector<double> all;
  for (std::size_t category = 0; category < plot.x.categories.size(); ++category) {
    double sum = 0;
    for (BarSeries const& series : plot.series) {
      double const value = series.values[category];
      TRAINSTONE_REQUIRE(std::isfinite(value) && value >= 0, "bar {} of series \"{}\" is {}", category, series.name,
                         value);
      sum += value;
      if (!plot.stacked) all.push_back(value);
    }
    if (plot.stacked) all.push_back(sum);
  }
  return all;
}

} // namespace

std::string plot_svg(Plot const& plot) {
  std::vector<double> x, y;
  for (Series const& series : plot.series) {
    require_drawable(series, plot.x, plot.y);
    append(x, series.x);
    for (auto const* values : {&series.y, &series.low, &series.high}) append(y, *values);
  }
  if (!x.empty()) append(x, plot.x.ticks);
  Canvas canvas(plot.title, plot.x, x, plot.y, y, false);
  std::vector<LegendEntry> legend;
  if (x.empty()) {
    canvas.say("no data");
    return canvas.finished(legend);
  }
  for (Band const& band : plot.bands) {
    canvas.add(shading(canvas, band));
    legend.push_back({band.name, Swatch::band, look_of(0)});
  }
  for (std::size_t place = 0; place < plot.series.size(); ++place) {
    Series const& series = plot.series[place];
    if (series.x.empty()) continue;
    Look look = look_at_place(series.look, place);
    if (series.drawn == Drawn::line) look.dash = "";
    if (series.drawn == Drawn::dashes && !*look.dash) look.dash = "6 4";
    canvas.add(drawing(canvas, series, look));
    legend.push_back({series.name, swatch_of(series.drawn), look});
  }
  return canvas.finished(legend);
}

std::string plot_svg(BarPlot const& plot) {
  std::size_t const count = plot.x.categories.size();
  for (BarSeries const& series : plot.series)
    TRAINSTONE_REQUIRE(series.values.size() == count, "series \"{}\" of {} bars, categories {}", series.name,
                       series.values.size(), count);
  PlotAxis x = plot.x, y = plot.y;
  y.from_zero = true;
  x.ticks.clear();
  for (std::size_t i = 0; i < count; ++i) x.ticks.push_back(static_cast<double>(i));
  Canvas canvas(plot.title, x, {-0.6, static_cast<double>(count) - 0.4}, y, heights(plot), true);
  if (count == 0 || plot.series.empty()) {
    canvas.say("no data");
    return canvas.finished({});
  }
  double const room = canvas.x(0.8) - canvas.x(0);
  double const width = plot.stacked ? room : room / static_cast<double>(plot.series.size());
  std::vector<LegendEntry> legend;
  std::vector<double> reached(count, 0);
  for (std::size_t place = 0; place < plot.series.size(); ++place) {
    Look const look = look_at_place(plot.series[place].look, place);
    legend.push_back({plot.series[place].name, Swatch::bar, look});
    for (std::size_t i = 0; i < count; ++i) {
      double const from = plot.stacked ? reached[i] : 0, to = from + plot.series[place].values[i];
      reached[i] = to;
      double const left = canvas.x(static_cast<double>(i)) - room / 2;
      if (to > from)
        canvas.add(bar_at(plot.stacked ? left : left + width * static_cast<double>(place), canvas.y(to), width,
                          canvas.y(from) - canvas.y(to), look));
    }
  }
  return canvas.finished(legend);
}

Series thinned(Series series, std::size_t parts) {
  std::size_t const size = series.x.size();
  if (size <= 4 * parts || !series.low.empty()) return series;
  Series thin = series;
  thin.x.clear();
  thin.y.clear();
  for (std::size_t part = 0; part < parts; ++part) {
    std::size_t const begin = part * size / parts, end = (part + 1) * size / parts;
    auto const [least, largest] = std::minmax_element(series.y.begin() + static_cast<std::ptrdiff_t>(begin),
                                                      series.y.begin() + static_cast<std::ptrdiff_t>(end));
    std::vector<std::size_t> kept = {begin, static_cast<std::size_t>(least - series.y.begin()),
                                     static_cast<std::size_t>(largest - series.y.begin()), end - 1};
    std::ranges::sort(kept);
    kept.erase(std::ranges::unique(kept).begin(), kept.end());
    for (std::size_t const index : kept) {
      thin.x.push_back(series.x[index]);
      thin.y.push_back(series.y[index]);
    }
  }
  return thin;
}

} // namespace trainstone
