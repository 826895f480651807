#pragma once

// kernels.gemm = "measured": who computes which product of a run, measured at its start and kept in a file of the
// user's cache folder, $XDG_CACHE_HOME or ~/.cache, for later runs with the same processor, threads and ranks.

#include "run_setup.hpp"

#include <map>
#include <string>

namespace trainstone {

struct MeasuredGemms {
  std::map<std::string, std::string> fastest; ///< for KernelConfig::fastest
  std::string note;                           ///< for the output
};

/// Measured, or as kept, where the deck asks for it; else empty. All ranks measure at once, as they will compute; what
/// the first one finds, or has kept, holds for all. Collective, after the communicator has its buffers.
/// \throws Error  if a product is wrong
MeasuredGemms find_fastest_gemms(RankContext& context, Placement const& placement, Deck const& deck);

} // namespace trainstone
