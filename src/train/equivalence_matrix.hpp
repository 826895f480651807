#pragma once

// Ordered mode's promise, tried out: the same small training under every strategy, reduction, bucket size, overlap and
// delay, each ending in a hash of all parameters. Owns the list of configurations and the model they share. What other
// numbers of ranks end in is compared by whoever runs them (ci/matrix).

#include "comm/communicator.hpp"
#include "core/views.hpp"
#include "train/run_config.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trainstone {

/// Delays that a configuration injects; they must not show in any bit.
enum class MatrixDelays { none, slow_sends, slow_kernels };

/// A row of the matrix.
struct MatrixRow {
  std::int64_t micro_batches; ///< of a step, over all ranks
  std::string recipe;         ///< of precision: fp32 or mixed16, in bf16
  ParallelConfig parallel;
  std::string algorithm; ///< of reductions: ordered or shared
  MatrixDelays delays;
};

/// "M 8, fp32, 4 ranks, hsdp 2x2, shared, bucket 3000, overlap, slow sends"
std::string describe(MatrixRow const& row, Rank ranks);

/// All configurations on so many ranks (a power of two). Quick: every value of every column at least once per strategy
/// in fp32 and over the strategies in mixed16, with 8 micro-batches. Other buffers than the host's leave out algorithms
/// of shared memory.
std::vector<MatrixRow> equivalence_matrix(Rank ranks, bool quick, MessageBuffers buffers = MessageBuffers::host);

/// Trains and returns the hash of all parameters; nothing if ranks disagree. Collective. The same on all ranks.
/// \param[in] choices  its kernels are used, and the buffers of its messages
std::optional<std::uint64_t> run_matrix_row(ExecutionSpace const& exec, Communicator& communicator,
                                            MatrixRow const& row, RunConfig const& choices, std::int64_t steps);

} // namespace trainstone
