#pragma once

// Tensor ranks as text: how every tensor is cut, who has which rows and columns, and what the ranks bring together
// between the pieces of a micro-batch. Owns the example as plain values. All numbers come from parameter tables, plans
// and the program of a step. Pure functions.

#include "comm/schedule/counters.hpp"
#include "model/activation_plan.hpp"
#include "model/parameter_table.hpp"
#include "model/part_lists.hpp"
#include "parallel/plan/shard_plan.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace trainstone {

/// Ranks that share every layer of a model, perhaps as a grid. Each has one slice. A step has one micro-batch.
struct TensorRanks {
  GptConfig model;
  MicroBatchShape shape; ///< of the micro-batch
  ParameterTable whole;
  std::vector<ParameterTable> tables; ///< by rank
  std::vector<ShardPlan> plans;       ///< by rank

  Rank ranks() const { return static_cast<Rank>(plans.size()); }
};

/// What tensor ranks have outside of products.
enum class PositionsOfRanks { all, shared };

/// A GPT of one block so small that its numbers can be followed, with a head for every rank, and as many positions for
/// each if they share them.
/// \param[in] features  of these ranks so many share the features of the residual stream, the others slices
GptConfig small_model_of(Rank ranks, PositionsOfRanks positions = PositionsOfRanks::all, Rank features = 1);

/// The micro-batch is one sample of all positions.
/// \param[in] model  its token table is padded so that the ranks can share it
/// \throws InputError   if the ranks do not divide the heads, or the positions, if they share them
TensorRanks tensor_ranks(GptConfig const& model, Rank ranks, PositionsOfRanks positions = PositionsOfRanks::all,
                         Rank features = 1);

/// The rows and columns of a whole tensor that a rank has, without gaps where ranges touch. The elements of a vector
/// count as rows.
struct TensorPart {
  std::vector<Range> rows;
  std::vector<Range> columns;
};

/// Of a tensor outside of blocks, or of block 0.
TensorPart held_part(TensorRanks const& all, Tensor tensor, Rank rank);

/// What the ranks bring together in a micro-batch, by kind.
struct CountedExchange {
  SliceExchange exchange;
  Collective collective;
  Index times;
  Index values;              ///< of each time
  std::size_t value_bytes;   ///< bytes of a value
  std::vector<Traffic> sent; ///< by rank, in bytes, over all times
};

/// Nothing of one rank.
std::vector<CountedExchange> counted_exchanges(TensorRanks const& all);

std::string tensor_text(TensorRanks const& all);

} // namespace trainstone
