#pragma once

// The ranks as a grid with named axes. Owns which ranks form a line of each axis, and which mesh a strategy asks for. A
// plain value. Does not know what the ranks of a line exchange.

#include "comm/schedule/topology.hpp"
#include "core/index.hpp"
#include "parallel/plan/config.hpp"

#include <array>
#include <vector>

namespace trainstone {

/// Fastest first: the ranks of a tensor group are neighbours, pipeline stages lie furthest apart.
enum class Axis {
  tensor,   ///< ranks that share the slices of every layer (TensorSlices), on the same data
  features, ///< ranks that share the features of the residual stream, on the same data
  shard,    ///< ranks that share one copy of what is sharded, each with its own data, and dedicated servers with none
  replica,  ///< ranks that hold the same shard, each with its own data
  pipeline, ///< ranks that share out the layers
};

inline constexpr std::array<Axis, 5> axes{Axis::tensor, Axis::features, Axis::shard, Axis::replica, Axis::pipeline};

/// Whether those ranks of a line that have data have different data.
constexpr bool is_data_axis(Axis axis) { return axis == Axis::shard || axis == Axis::replica; }

/// Whether the ranks of a line compute the same layers of the same data together.
constexpr bool is_layer_axis(Axis axis) { return axis == Axis::tensor || axis == Axis::features; }

/// The axes whose ranks share out the model, in the order in which they add up what each has of it.
inline constexpr std::array model_axes{Axis::tensor, Axis::features, Axis::pipeline};

/// Two stages of a pipeline, the lower one first.
struct StagePair {
  Rank lower;
  Rank upper;

  bool operator==(StagePair const&) const = default;
};

/// Rank = tensor index + tensor x (features index + features x (shard index + shard x (replica index + replica x
/// pipeline index))).
struct Mesh {
  Rank tensor = 1;   ///< ranks that share the slices of every layer
  Rank features = 1; ///< ranks that share the features of the residual stream
  Rank shard = 1;    ///< F: ranks of a shard group
  Rank replica = 1;  ///< R: shard groups that hold the same
  Rank pipeline = 1; ///< stages
  Rank servers = 0;  ///< the last ranks of the shard axis: they have no data, and run no part of the model

  Rank ranks() const { return sharers() * shard * replica * pipeline; }
  /// The ranks that share every layer: a tensor group.
  Rank sharers() const { return tensor * features; }
  bool shares_layers() const { return sharers() > 1; }
  /// Whether it is the first rank of its tensor group, which counts what all of them have.
  bool leads_sharers(Rank rank) const { return rank % sharers() == 0; }
  Rank size(Axis axis) const;
  /// The index of a rank on an axis.
  Rank index(Axis axis, Rank rank) const { return rank / stride(axis) % size(axis); }
  /// The rank that differs from `rank` on this axis only, by its index there.
  Rank rank_at(Axis axis, Rank rank, Rank there) const;
  /// The ranks that differ from `rank` on this axis only, ascending, itself included: its line.
  std::vector<Rank> members(Axis axis, Rank rank) const;
  /// The ranks of two stages of this rank's line; the index there of a rank of one of them.
  std::vector<Rank> members(StagePair const& stages, Rank rank) const {
    return {rank_at(Axis::pipeline, rank, stages.lower), rank_at(Axis::pipeline, rank, stages.upper)};
  }
  Rank index(StagePair const& stages, Rank rank) const { return index(Axis::pipeline, rank) == stages.lower ? 0 : 1; }
  /// The same number for exactly these ranks.
  int colour(Axis axis, Rank rank) const { return rank_at(axis, rank, 0); }

  /// The data ranks, among which a batch is divided: all others run the same micro-batches as one of them, or serve.
  Rank data() const { return (shard - servers) * replica; }
  bool serves(Rank rank) const { return index(Axis::shard, rank) >= shard - servers; }
  /// The equal parts into which the ranks of a shard group may cut a group of parameters.
  Rank parts() const { return servers > 0 ? servers : data(); }
  /// The index of a data rank on both axes of data, the shard axis first.
  Rank data_index(Rank rank) const { return rank / stride(Axis::shard) % data(); }

private:
  /// From a rank to the next one of its line.
  Rank stride(Axis axis) const;
};

/// The mesh of a strategy. data() is right even if find_parallel_problem() refuses the shard group. A number of stages
/// or of tensor ranks that find_stages_problem() refuses counts as 1.
Mesh mesh_of(ParallelConfig const& parallel, Index ranks);

} // namespace trainstone
