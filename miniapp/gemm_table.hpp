#pragma once

// kernels.gemm = "measured": chooses who computes each product of a run, and how. Measures at the start of the run and
// keeps the choice in a file of the cache folder ($XDG_CACHE_HOME or ~/.cache), for later runs with the same
// processor, device, versions of libraries, threads and ranks.

#include "commands.hpp"

#include "train/plan/resolved_run.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace trainstone {

struct MeasuredGemms {
  std::optional<GemmChoice> choice; ///< none: the run does not ask for one
  std::string note;                 ///< for the output
};

/// The choice, measured or from the file, if the run asks for it. All ranks measure at the same time, as they will
/// compute. The choice of the first rank holds for all. Collective; the communicator must have its buffers.
/// \param[in] asked       the run without any measurement
/// \param[in] neighbours  ranks of this machine
/// \throws Error  if a product is wrong
MeasuredGemms find_fastest_gemms(RankContext& context, std::int64_t neighbours, ResolvedRun const& asked);

} // namespace trainstone
