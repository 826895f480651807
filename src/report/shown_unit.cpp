#include "report/shown_unit.hpp"

#include "core/quantity.hpp"

#include <fmt/format.h>

#include <array>
#include <utility>

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
  static constexpr std::array<std::pair<double, char const*>, 5> units{
      {{tebi, "TiB"}, {gibi, "GiB"}, {mebi, "MiB"}, {kibi, "KiB"}, {1, "B"}}};
  return largest_unit(largest, units);
}

ShownUnit unit_of_amount(double largest, std::string const& unit) {
  static constexpr std::array<std::pair<double, char const*>, 6> units{
      {{1e15, "P"}, {1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}, {1, ""}}};
  ShownUnit shown = largest_unit(largest, units);
  shown.name += (shown.name.empty() ? "" : " ") + unit;
  return shown;
}

std::string bytes_text(double bytes) {
  ShownUnit const unit = unit_of_bytes(bytes);
  return fmt::format("{:.4g} {}", unit.factor * bytes, unit.name);
}

} // namespace trainstone
