#pragma once

// Numbers and words that sections of a report share. Pure functions.

#include "report/page.hpp"
#include "report/shown_unit.hpp"
#include "result/result.hpp"

#include <string>

namespace trainstone {

/// "57.2 ms"
std::string seconds_text(double seconds);

/// A name that a file may have anywhere: lower-case letters, digits and hyphens of the first characters.
std::string file_name_of(std::string const& text);

Tone tone_of(Outcome outcome);

/// "FOM: 1.755505e+04 tokens/s", with the name that the outcome allows; "none" without a rate.
std::string rate_text(Result const& result);

} // namespace trainstone
