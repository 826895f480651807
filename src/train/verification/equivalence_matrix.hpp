#pragma once

// Tests the promise of ordered mode. The same small training runs under every strategy, reduction, bucket size, overlap
// and delay, and each run ends with a hash of all parameters. Owns the list of configurations and the model that they
// share. ci/matrix compares the hashes of different numbers of ranks.

#include "comm/execution/communicator.hpp"
#include "core/views.hpp"
#include "train/plan/run_config.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trainstone {

/// Delays that a configuration injects; they must not show in any bit.
enum class MatrixDelays { none, slow_sends, slow_kernels };

/// Rows of a micro-batch: chunks of the loss must divide them, and slices the positions.
inline constexpr std::int64_t matrix_rows = 12, matrix_rows_in_slices = 16;

constexpr std::int64_t matrix_rows_of(ParallelConfig const& parallel) {
  return parallel.slices() > 1 ? matrix_rows_in_slices : matrix_rows;
}
/// Blocks of the model that all ranks train on one stage, and of the model of the mesh.
inline constexpr std::int64_t matrix_layers = 2, mesh_layers = 8;
/// Cuts every group of the model, on 8 ranks into their smallest slices.
inline constexpr double tiny_bucket = 3000;

/// Of offloaded state: several for every large share, which are not multiples of it.
inline constexpr double tiny_chunk = 4096;

/// A row of the matrix.
struct MatrixRow {
  std::int64_t micro_batches; ///< of a step, over all ranks
  RecipeName recipe;          ///< of precision: fp32 or mixed16, in bf16
  ParallelConfig parallel;
  std::string algorithm; ///< of reductions: ordered or shared
  MatrixDelays delays;
  std::vector<Recompute> recompute = {}; ///< what the model's blocks compute again, in turn
  std::int64_t layers = matrix_layers;
};

/// What rows compute again in turn: of `all` what a model with these options can, or what the options name.
std::vector<std::vector<Recompute>> recomputations(GptOptions const& options, std::vector<std::vector<Recompute>> all);

/// Of a row: where the optimizer's state and shares of parameters lie, in turn, where its strategy can move them.
void set_residences(ParallelConfig& parallel, std::size_t number);

/// Of a row: the blocks of a unit, from 1 to `most` in turn, where its strategy shares the state.
void set_unit(ParallelConfig& parallel, std::size_t number, std::size_t most);

/// "M 8, fp32, 4 ranks, hsdp 2x2, shared, bucket 3000, overlap, slow sends, full". Of the mesh, the stages follow the
/// ranks: "2 stages, interleaved 2, even" are two stages of two chunks each.
std::string describe(MatrixRow const& row, Rank ranks);

/// All configurations on a number of ranks (a power of two). Quick, with 8 micro-batches: in fp32 every value of every
/// column but the last one at least once per strategy, and in mixed16 at least once over all strategies. What is
/// computed again changes from row to row, unless `options` name it. If `shares_memory`, there are rows with
/// algorithms of shared memory, too.
std::vector<MatrixRow> equivalence_matrix(Rank ranks, bool quick, bool shares_memory = true,
                                          GptOptions const& options = {});

/// Trains and returns the hash of all parameters; nothing if ranks disagree. Collective. The same on all ranks.
/// \param[in] choices  configuration whose kernels and message buffers are used
std::optional<std::uint64_t> run_matrix_row(ExecutionSpace const& exec, Communicator& communicator,
                                            MatrixRow const& row, RunConfig const& choices, std::int64_t steps);

} // namespace trainstone
