#pragma once

// Numbers and words that sections of a report share. Pure functions.

#include "report/page.hpp"
#include "report/result.hpp"

#include <string>

namespace trainstone {

/// The unit that values up to some largest one are shown in.
struct ShownUnit {
  double factor = 1; ///< shown = factor * value
  std::string name;
};
/// s, ms, us or ns
ShownUnit unit_of_seconds(double largest);
/// B, KiB, MiB or GiB
ShownUnit unit_of_bytes(double largest);
/// `unit`, or thousands, millions, ... of it with SI's letters: "k tokens/s"
ShownUnit unit_of_amount(double largest, std::string const& unit);

/// "57.2 ms"
std::string seconds_text(double seconds);

Tone tone_of(Outcome outcome);

/// "FOM: 1.755505e+04 tokens/s", with the name that the outcome allows; "none" without a rate.
std::string rate_text(Result const& result);

/// Steps of the window.
std::vector<StepReport> measured_steps(Result const& result);

} // namespace trainstone
