#pragma once

// `estimate --lecture optimizer`: Adam as one slide has it beside Adam as published, and the bytes of each optimizer's
// state. Owns the text only; the figures are lectures/taught_optimizer.hpp's.

#include "lectures/taught_optimizer.hpp"

#include <string>

namespace trainstone {

/// All tables, lines with their ends.
std::string lecture_optimizer_text(TaughtOptimizer const& lecture);

} // namespace trainstone
