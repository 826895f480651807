#pragma once

// `estimate --lecture networks`: ten frameworks and the networks that they trained, as taught, beside the least memory
// that model state takes on each device. Owns the text only; the figures are lectures/taught_networks.hpp's.

#include "lectures/taught_networks.hpp"

#include <string>
#include <vector>

namespace trainstone {

/// The table, lines with their ends.
std::string lecture_networks_text(std::vector<NetworkRow> const& rows);

} // namespace trainstone
