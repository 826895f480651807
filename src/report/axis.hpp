#pragma once

// Axes of plots: their interval, their ticks, the texts of ticks, and the place of a value. Pure functions on finite
// numbers. Does not draw.

#include <functional>
#include <span>
#include <string>
#include <vector>

namespace trainstone {

struct Interval {
  double low = 0;
  double high = 1;
  bool operator==(Interval const&) const = default;
};

enum class Scale { linear, log };

/// The least and the largest value. \throws Error on no value, and on one that is not finite
Interval extent(std::span<double const> values);

/// Round numbers, 1, 2 or 5 times a power of ten apart, within the interval: as many as fit, at most `most`. \throws
/// Error unless low < high, both finite and far enough apart for doubles, and most > 1
std::vector<double> linear_ticks(Interval interval, std::size_t most);

/// Powers of `base` within the interval; every second, third ... where they are more than `most`. Of base 10 also 2 and
/// 5 times a power where there is room, and linear_ticks where the ends are less than ten times apart. \throws Error
/// unless 0 < low < high
std::vector<double> log_ticks(Interval interval, double base, std::size_t most);

/// With as many digits behind the point as all ticks need, up to nine: "0.25", "1600", "2e-06".
std::string tick_text(double value, std::span<double const> ticks);

/// The content and the form of an axis.
struct PlotAxis {
  std::string label = {}; ///< with the unit: "loss (nats per token)"
  Scale scale = Scale::linear;
  double base = 10;                                   ///< of log: of the ticks
  bool from_zero = false;                             ///< of linear: 0 belongs to the interval
  std::vector<double> ticks = {};                     ///< empty: chosen
  std::function<std::string(double)> tick_label = {}; ///< empty: tick_text, of log as short as it goes
  std::vector<std::string> categories = {};           ///< of bars: names of 0, 1, ... instead of numbers
};

/// An axis laid along pixels.
class LaidAxis {
public:
  /// \param[in] values  all that are drawn; where they are equal, or none, the interval is made wider
  /// \param[in] begin, end  pixels of the interval's ends; begin may be the larger one
  /// \throws Error if a value is not finite, or not above 0 on a log scale
  LaidAxis(PlotAxis const& axis, std::span<double const> values, double begin, double end, std::size_t most_ticks);

  Interval interval() const { return m_interval; }
  std::vector<double> const& ticks() const { return m_ticks; }
  std::vector<std::string> const& labels() const { return m_labels; }
  /// Pixel of a value.
  double at(double value) const;

private:
  Scale m_scale;
  Interval m_interval;
  double m_begin, m_end;
  std::vector<double> m_ticks;
  std::vector<std::string> m_labels;
};

} // namespace trainstone
