#pragma once

// `estimate --lecture capability`: what is taught about the largest model of each kind of parallelism beside the exact
// figures and limits. Owns the text only; the figures are lectures/taught_capability.hpp's.

#include "lectures/taught_capability.hpp"

#include <string>

namespace trainstone {

/// All tables, lines with their ends.
std::string lecture_capability_text(TaughtCapability const& lecture);

} // namespace trainstone
