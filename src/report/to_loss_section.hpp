#pragma once

// What the choices of a study take until their held-out loss is low enough: operations against parameters, and loss
// against operations. Pure functions.

#include "report/page.hpp"
#include "report/report_input.hpp"

#include <string>

namespace trainstone {

/// A table of the choices, medians over the repeats that reached the loss, and two figures.
/// \param[in] name  of the study, with which the figures' names begin
Page to_loss_section(std::string const& name, ReportedStudy const& reported, ReportInput const& input);

} // namespace trainstone
