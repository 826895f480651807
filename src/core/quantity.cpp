#include "core/quantity.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <span>

namespace trainstone {

namespace {

/// One of the two factors is 1, so that a value is rounded once: 50 us are 50 / 1e6, the double next to 0.00005.
struct Unit {
  std::string_view name;
  double multiply = 1;
  double divide = 1;
};

// Ascending.
constexpr std::array time_units{Unit{"ns", 1, 1e9}, Unit{"us", 1, 1e6}, Unit{"ms", 1, 1e3},
                                Unit{"s"},          Unit{"min", 60},    Unit{"h", 3600}};
constexpr std::array size_units{Unit{"B"},         Unit{"kB", 1e3}, Unit{"KiB", kibi}, Unit{"MB", 1e6},
                                Unit{"MiB", mebi}, Unit{"GB", 1e9}, Unit{"GiB", gibi}};
constexpr std::string_view per_second = "/s";

std::span<Unit const> units_of(Dimension dimension) {
  return dimension == Dimension::time ? std::span<Unit const>(time_units) : std::span<Unit const>(size_units);
}

std::string_view suffix_of(Dimension dimension) { return dimension == Dimension::rate ? per_second : ""; }

} // namespace

std::optional<Quantity> read_quantity(std::string_view text, Dimension dimension) {
  double number = 0;
  auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || !std::isfinite(number)) return std::nullopt;
  std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
  unit.remove_prefix(std::min(unit.find_first_not_of(' '), unit.size()));
  std::string_view const suffix = suffix_of(dimension);
  if (!unit.ends_with(suffix)) return std::nullopt;
  unit.remove_suffix(suffix.size());
  if (unit == "KB") unit = "kB";
  for (Unit const& known : units_of(dimension)) {
    double const value = number * known.multiply / known.divide;
    if (known.name == unit && std::isfinite(value)) return Quantity{dimension, value};
  }
  return std::nullopt;
}

std::string to_string(Quantity const& quantity) {
  std::string_view const suffix = suffix_of(quantity.dimension);
  std::string best, best_number;
  for (Unit const& unit : units_of(quantity.dimension)) {
    double const number = quantity.value * unit.divide / unit.multiply;
    // 15 digits leave out what the two roundings may have added
    std::string const digits = fmt::format("{:.15g}", number);
    std::string const text = fmt::format("{} {}{}", digits, unit.name, suffix);
    bool const better = best.empty() || digits.size() <= best_number.size();
    if (!better || !(number >= 1) || read_quantity(text, quantity.dimension) != quantity) continue;
    best = text;
    best_number = digits;
  }
  if (!best.empty()) return best;
  return fmt::format("{} {}{}", quantity.value, quantity.dimension == Dimension::time ? "s" : "B", suffix);
}

std::string_view si_unit(Dimension dimension) {
  switch (dimension) {
  case Dimension::time: return "s";
  case Dimension::size: return "bytes";
  case Dimension::rate: return "bytes/s";
  }
  return {};
}

std::string description(Dimension dimension) {
  std::string names;
  for (Unit const& unit : units_of(dimension)) {
    names += fmt::format("{}{}{}", names.empty() ? "" : ", ", unit.name, suffix_of(dimension));
  }
  char const* const noun = dimension == Dimension::time ? "time" : dimension == Dimension::size ? "size" : "rate";
  return fmt::format("a {} with its unit ({})", noun, names);
}

} // namespace trainstone
