#pragma once

// The part of a result's section about its step: what was predicted and what was measured, as a table, as a picture and
// as text. Pure.

#include "report/page.hpp"
#include "report/report_input.hpp"

namespace trainstone {

/// Times of NamedResult::step and of the result's measured steps, or a sentence about what is missing.
Page step_section(NamedResult const& named);

} // namespace trainstone
