#include "report/report_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace trainstone {

namespace {

/// The largest unit that `largest` is at least one of.
template <std::size_t count>
ShownUnit largest_unit(double largest, std::array<std::pair<double, char const*>, count> const& units) {
  for (auto const& [size, name] : units)
    if (largest >= size) return {1 / size, name};
  return {1 / units.back().first, units.back().second};
}

} // namespace

ShownUnit unit_of_seconds(double largest) {
  static constexpr std::array<std::pair<double, char const*>, 4> units{
      {{1, "s"}, {1e-3, "ms"}, {1e-6, "us"}, {1e-9, "ns"}}};
  return largest_unit(largest, units);
}

ShownUnit unit_of_bytes(double largest) {
  static constexpr double kibi = 1024;
  static constexpr std::array<std::pair<double, char const*>, 4> units{
      {{kibi * kibi * kibi, "GiB"}, {kibi * kibi, "MiB"}, {kibi, "KiB"}, {1, "B"}}};
  return largest_unit(largest, units);
}

ShownUnit unit_of_amount(double largest, std::string const& unit) {
  static constexpr std::array<std::pair<double, char const*>, 6> units{
      {{1e15, "P"}, {1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}, {1, ""}}};
  ShownUnit shown = largest_unit(largest, units);
  shown.name += (shown.name.empty() ? "" : " ") + unit;
  return shown;
}

std::string seconds_text(double seconds) {
  ShownUnit const unit = unit_of_seconds(seconds);
  return fmt::format("{:.4g} {}", unit.factor * seconds, unit.name);
}

Tone tone_of(Outcome outcome) {
  switch (outcome) {
  case Outcome::valid: return Tone::good;
  case Outcome::invalid: return Tone::bad;
  default: return Tone::notice;
  }
}

std::string rate_text(Result const& result) {
  if (!result.tokens_per_second) return "none";
  return fmt::format("{}: {:.6e} tokens/s", rate_name(result.outcome), result.tokens_per_second->value);
}

std::vector<StepReport> measured_steps(Result const& result) {
  std::vector<StepReport> steps;
  std::ranges::copy_if(result.samples, std::back_inserter(steps), [&](StepReport const& step) {
    return step.step >= result.window.first && step.step <= result.window.last;
  });
  return steps;
}

} // namespace trainstone
