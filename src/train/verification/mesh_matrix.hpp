#pragma once

// The configurations of the equivalence matrix on stages of pipelines. A pure function. A model of eight blocks trains
// on every number of stages, with every schedule and strategy.

#include "train/verification/equivalence_matrix.hpp"

#include <vector>

namespace trainstone {

/// All configurations of the mesh on 1, 2, 4 or 8 ranks: stages times one or two data ranks, or, of a model in slices
/// (options.slices.blocks), tensor ranks times stages times data ranks. With stages cut evenly,
/// there is every schedule, strategy, recomputation and delay, with 8 and 16 micro-batches in fp32 and mixed16. Other
/// cuts come with every schedule and strategy. Buckets, overlap and algorithms change from row to row. Quick: one row
/// for every number of stages, schedule and strategy. All else changes from row to row. `options` may name what is
/// computed again. If `shares_memory`, there are rows with algorithms of shared memory, too.
std::vector<MatrixRow> mesh_matrix(Rank ranks, bool quick, bool shares_memory = true, GptOptions const& options = {});

} // namespace trainstone
