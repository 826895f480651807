#include "deck/size_argument.hpp"

#include "core/quantity.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>

namespace trainstone {

namespace {

struct Unit {
  std::string_view name; ///< in small letters
  double bytes;
};

constexpr std::array units{Unit{"", 1},       Unit{"b", 1},      Unit{"k", kibi},   Unit{"m", mebi},  Unit{"g", gibi},
                           Unit{"t", tebi},   Unit{"kb", 1e3},   Unit{"mb", 1e6},   Unit{"gb", 1e9},  Unit{"tb", 1e12},
                           Unit{"kib", kibi}, Unit{"mib", mebi}, Unit{"gib", gibi}, Unit{"tib", tebi}};

} // namespace

std::optional<std::uint64_t> read_size_argument(std::string_view text, std::uint64_t most) {
  double number = 0;
  auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{}) return std::nullopt;
  std::string unit(text.substr(static_cast<std::size_t>(end - text.data())));
  unit.erase(0, std::min(unit.find_first_not_of(' '), unit.size()));
  std::ranges::transform(unit, unit.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  auto const known = std::ranges::find(units, unit, &Unit::name);
  if (known == units.end()) return std::nullopt;
  double const bytes = number * known->bytes;
  if (!(bytes >= 1 && bytes <= static_cast<double>(most))) return std::nullopt; // NaN, too
  return static_cast<std::uint64_t>(bytes);
}

std::string size_argument_problem(std::uint64_t most) {
  return fmt::format(
      "no size; it must be 1 to {} bytes: a number, or one with K, M, G, T (1024), kB, MB, GB, TB (1000) or "
      "KiB, MiB, GiB, TiB",
      most);
}

std::optional<double> read_time_argument(std::string_view text) {
  bool const minutes = text.ends_with('m'); // as batch systems write them
  auto const time = read_quantity(std::string(text) + (minutes ? "in" : ""), Dimension::time);
  return time && time->value > 0 ? std::optional(time->value) : std::nullopt;
}

} // namespace trainstone
