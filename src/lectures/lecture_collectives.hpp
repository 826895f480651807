#pragma once

// `estimate --lecture collectives`: the tables as they are taught beside the exact figures, with what explains the
// difference. Owns the text only; the figures are lectures/taught_collectives.hpp's.

#include "lectures/taught_collectives.hpp"

#include <string>

namespace trainstone {

/// All tables, lines with their ends. \param[in] machine where its constants come from: "peaks.json: ..."
std::string lecture_collectives_text(TaughtCollectives const& lecture, std::string const& machine);

} // namespace trainstone
