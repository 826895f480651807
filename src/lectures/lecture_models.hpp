#pragma once

// `estimate --lecture models`: what is taught about named models beside the exact figures, with what explains the
// difference; and which of the lecture's cards hold a number of bytes. Owns the text only; the figures are
// lectures/taught_models.hpp's.

#include "lectures/taught_models.hpp"

#include <string>

namespace trainstone {

/// All tables, lines with their ends.
std::string lecture_models_text(TaughtModels const& lecture);

/// "16 32 40 80", "40 80", "none".
std::string cards_text(double bytes, double unit);

} // namespace trainstone
