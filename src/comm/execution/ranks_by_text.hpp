#pragma once

// Groups ranks by their texts, for messages about ranks that should agree. A pure function.

#include <string>
#include <vector>

namespace trainstone {

/// "ranks 0, 2: a; rank 1: b", by ascending text; empty if there are no ranks. \param[in] texts  by rank
std::string ranks_by_text(std::vector<std::string> const& texts);

} // namespace trainstone
