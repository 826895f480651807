#pragma once

// `estimate --lecture zero`: what is taught about ZeRO beside the exact figures, with what explains the difference.
// Owns the text only; the figures are lectures/taught_zero.hpp's.

#include "lectures/taught_zero.hpp"

#include <string>

namespace trainstone {

/// All tables, lines with their ends. \param[in] machine where the constants of gathers come from
std::string lecture_zero_text(TaughtZero const& lecture, std::string const& machine);

} // namespace trainstone
