#pragma once

// Quantities as users write them: "50 us", "25 MiB", "1 GB/s". Owns the units, and converts between a text and a value
// in SI units in both directions. Promises that a printed value reads back as the same bits. Knows nothing of keys or
// decks.

#include <optional>
#include <string>
#include <string_view>

namespace trainstone {

inline constexpr double kibi = 1024, mebi = kibi * kibi, gibi = kibi * mebi, tebi = kibi * gibi;

/// size: bytes; rate: bytes per second.
enum class Dimension { time, size, rate };

struct Quantity {
  Dimension dimension = Dimension::time;
  double value = 0; ///< s, bytes or bytes/s
  bool operator==(Quantity const&) const = default;
};

/// A finite decimal number and a unit, spaces between them or not; upper and lower case differ, KB is kB. Nothing if
/// the text is anything else.
std::optional<Quantity> read_quantity(std::string_view text, Dimension dimension);

/// With the unit that needs the fewest digits and a number of at least 1; zero and less in the SI unit.
std::string to_string(Quantity const& quantity);

/// "s", "bytes", "bytes/s": the unit of Quantity::value.
std::string_view si_unit(Dimension dimension);

/// "a time with its unit (ns, us, ms, s, min, h)", for messages and help.
std::string description(Dimension dimension);

} // namespace trainstone
