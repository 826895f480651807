#pragma once

// How many blocks each stage of a pipeline has. Blocks stay in order, so a cut is a list of numbers. Stage 0 also has
// the embedding, the last stage the head. Only these two may have no block. Pure functions.

#include "core/index.hpp"
#include "parallel/pipeline/stage_cut.hpp"

#include <optional>
#include <string_view>
#include <vector>

namespace trainstone {

/// What forward and backward of a micro-batch cost, in any unit: FLOPs, or seconds.
struct BlockCosts {
  std::vector<double> blocks; ///< by block
  double embed = 0;
  double head = 0;
};

/// Embed, and head, may be stages of their own.
constexpr Index most_stages(Index blocks) { return blocks + 2; }

/// As equal as possible in blocks: the first stages have one more if there is a remainder. With two stages more than
/// blocks, the first and the last stage have none.
std::vector<Index> even_stages(Index blocks, Index stages);

/// The cut with the least bound (stages_bound); of these the one whose stages cost the most alike (least sum of
/// squares). Complexity: O(stages x blocks^2).
std::vector<Index> balanced_stages(BlockCosts const& costs, Index stages, Index micro_batches);

/// The bound of pipeline_bound.hpp for a cut: max over i of (costs of the stages before i) + m x (cost of stage i).
double stages_bound(BlockCosts const& costs, std::vector<Index> const& cut, Index micro_batches);

/// By stage: its blocks, the embedding, the head.
std::vector<double> stage_costs(BlockCosts const& costs, std::vector<Index> const& cut);

/// The name of a way to cut. \throws InputError listing the legal values
StageCut parse_stage_cut(std::string_view name);

/// The cut in the way that is asked for. \param[in] listed  numbers of blocks, with StageCut::listed
/// \throws InputError if the list has not one number for each stage, or not all blocks in sum
std::vector<Index> cut_stages(StageCut cut, std::vector<Index> const& listed, BlockCosts const& costs, Index stages,
                              Index micro_batches);

} // namespace trainstone
