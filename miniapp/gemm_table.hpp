#pragma once

// kernels.gemm = "measured": chooses the provider of each product of a run. Measures at the start of the run and keeps
// the choice in a file of the user's cache folder ($XDG_CACHE_HOME or ~/.cache), for later runs with the same
// processor, threads and ranks.

#include "run_setup.hpp"

#include <map>
#include <string>

namespace trainstone {

struct MeasuredGemms {
  std::map<std::string, std::string> fastest; ///< for KernelConfig::fastest
  std::string note;                           ///< for the output
};

/// The choice, measured or from the file, if the deck asks for it; else empty. All ranks measure at the same time, as
/// they will compute. The choice of the first rank holds for all. Collective; the communicator must have its buffers.
/// \throws Error  if a product is wrong
MeasuredGemms find_fastest_gemms(RankContext& context, Placement const& placement, Deck const& deck);

} // namespace trainstone
