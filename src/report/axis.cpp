#include "report/axis.hpp"

#include "core/error.hpp"

#include <algorithm>
#include <cmath>

namespace trainstone {

namespace {

constexpr double rounding = 1e-9; // of a step: a tick that is meant to lie on an end does

/// Whether doubles can tell points within it apart.
bool is_wide(Interval interval) {
  double const largest = std::max(std::abs(interval.low), std::abs(interval.high));
  return interval.high - interval.low > 1e-12 * largest;
}

void require_interval(Interval interval) {
  TRAINSTONE_REQUIRE(std::isfinite(interval.low) && std::isfinite(interval.high) && is_wide(interval),
                     "an axis from {} to {}", interval.low, interval.high);
}

/// Multiples of step in the interval.
std::vector<double> multiples(Interval interval, double step) {
  double const first = std::ceil(interval.low / step - rounding), last = std::floor(interval.high / step + rounding);
  std::vector<double> values;
  for (double index = first; index <= last; ++index) values.push_back(index == 0 ? 0.0 : index * step);
  return values;
}

/// Room beyond the values, and something to show where there is but one.
Interval widened(Interval values, PlotAxis const& axis) {
  if (axis.scale == Scale::log) {
    if (is_wide(values)) return values;
    return {values.low / axis.base, values.high * axis.base};
  }
  if (axis.from_zero) values = {std::min(values.low, 0.0), std::max(values.high, 0.0)};
  if (is_wide(values)) return values;
  double const more = values.low == 0 ? 1 : 0.1 * std::abs(values.low);
  return {values.low - more, values.high + more};
}

} // namespace

Interval extent(std::span<double const> values) {
  TRAINSTONE_REQUIRE(!values.empty(), "the extent of {} values", values.size());
  Interval interval{values[0], values[0]};
  for (double const value : values) {
    TRAINSTONE_REQUIRE(std::isfinite(value), "{} in a plot", value);
    interval = {std::min(interval.low, value), std::max(interval.high, value)};
  }
  return interval;
}

std::vector<double> linear_ticks(Interval interval, std::size_t most) {
  require_interval(interval);
  TRAINSTONE_REQUIRE(most > 1, "{} ticks", most);
  double const least_step = (interval.high - interval.low) / static_cast<double>(most);
  double power = std::pow(10, std::floor(std::log10(least_step)));
  for (;; power *= 10)
    for (double const factor : {1.0, 2.0, 5.0}) {
      if (factor * power < least_step * (1 - rounding)) continue;
      std::vector<double> ticks = multiples(interval, factor * power);
      if (ticks.size() <= most) return ticks;
    }
}

std::vector<double> log_ticks(Interval interval, double base, std::size_t most) {
  require_interval(interval);
  TRAINSTONE_REQUIRE(interval.low > 0 && base > 1 && most > 1, "{} ticks of base {} from {}", most, base, interval.low);
  if (base == 10 && interval.high < 10 * interval.low) return linear_ticks(interval, most);
  auto const exponent = [&](double value) { return std::log(value) / std::log(base); };
  auto const first = std::ceil(exponent(interval.low) - rounding);
  auto const last = std::floor(exponent(interval.high) + rounding);
  auto const powers = static_cast<std::size_t>(std::max(0.0, last - first + 1));
  auto const stride = static_cast<double>(powers <= most ? 1 : (powers + most - 1) / most);
  std::vector<double> ticks;
  for (double index = first; index <= last; index += stride) ticks.push_back(std::pow(base, index));
  if (base == 10 && 3 * (powers + 1) <= most) {
    for (double index = first - 1; index <= last; ++index)
      for (double const factor : {2.0, 5.0}) {
        double const value = factor * std::pow(10, index);
        if (value >= interval.low && value <= interval.high) ticks.push_back(value);
      }
    std::ranges::sort(ticks);
  }
  return ticks.size() > 1 ? ticks : linear_ticks(interval, most);
}

std::string tick_text(double value, std::span<double const> ticks) {
  Interval const all = extent(ticks);
  double const largest = std::max(std::abs(all.low), std::abs(all.high));
  if (value == 0) return "0";
  if (largest >= 1e6 || largest < 1e-3) return fmt::format("{:.6g}", value);
  int digits = 0;
  auto const is_exact = [&](double tick) {
    double const shifted = tick * std::pow(10, digits);
    return std::abs(shifted - std::round(shifted)) < 1e-6;
  };
  while (digits < 9 && !std::ranges::all_of(ticks, is_exact)) ++digits;
  return fmt::format("{:.{}f}", value, digits);
}

LaidAxis::LaidAxis(PlotAxis const& axis, std::span<double const> values, double begin, double end,
                   std::size_t most_ticks)
    : m_scale(axis.scale), m_begin(begin), m_end(end) {
  m_interval = values.empty() ? Interval{m_scale == Scale::log ? 1.0 : 0.0, axis.base} : widened(extent(values), axis);
  TRAINSTONE_REQUIRE(m_scale == Scale::linear || m_interval.low > 0, "{} on the log axis \"{}\"", m_interval.low,
                     axis.label);
  m_ticks = axis.ticks;
  if (m_ticks.empty())
    m_ticks =
        m_scale == Scale::log ? log_ticks(m_interval, axis.base, most_ticks) : linear_ticks(m_interval, most_ticks);
  for (double const tick : m_ticks) {
    auto const category = static_cast<std::size_t>(tick);
    m_labels.push_back(!axis.categories.empty() ? axis.categories.at(category)
                       : axis.tick_label        ? axis.tick_label(tick)
                       : m_scale == Scale::log  ? fmt::format("{:g}", tick)
                                                : tick_text(tick, m_ticks));
  }
}

double LaidAxis::at(double value) const {
  auto const laid = [&](double number) { return m_scale == Scale::log ? std::log(number) : number; };
  double const share = (laid(value) - laid(m_interval.low)) / (laid(m_interval.high) - laid(m_interval.low));
  return m_begin + share * (m_end - m_begin);
}

} // namespace trainstone
