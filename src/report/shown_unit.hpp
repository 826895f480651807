#pragma once

// Units that numbers are shown in, so that they need few digits: in tables, and on axes that many values share. Pure
// functions. quantity.hpp has the units that users write.

#include <string>

namespace trainstone {

/// The unit that values up to some largest one are shown in.
struct ShownUnit {
  double factor = 1; ///< shown = factor * value
  std::string name;
};
/// s, ms, us or ns
ShownUnit unit_of_seconds(double largest);
/// B, KiB, MiB, GiB or TiB
ShownUnit unit_of_bytes(double largest);
/// `unit`, or thousands, millions, ... of it with SI's letters: "k tokens/s"
ShownUnit unit_of_amount(double largest, std::string const& unit);

/// "8 B", "1 KiB", "1.5 MiB"
std::string bytes_text(double bytes);

} // namespace trainstone
