#pragma once

// `estimate --lecture activations`: what is taught about activations that are kept for backward, and about computing
// them again, beside what this program keeps and computes. Owns the text only; the figures are
// lectures/taught_activations.hpp's.

#include "lectures/taught_activations.hpp"

#include <string>

namespace trainstone {

/// All tables, lines with their ends.
std::string lecture_activations_text(TaughtActivations const& lecture);

} // namespace trainstone
