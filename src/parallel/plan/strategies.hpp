#pragma once

// The strategies as rows of one table: names, who shares the training state, and what of it. The plan follows from the
// row; decks, `explain` and the equivalence matrix take their names from here. Also lists every configuration that a
// number of ranks can run, for tests and checks that must hold for all strategies.

#include "core/index.hpp"
#include "parallel/plan/config.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trainstone {

/// Which ranks share one copy of the training state. The others hold copies of their own.
enum class StateSharers {
  none,
  group, ///< of parallel.shard_group ranks
  all,
  servers, ///< of the optimizer state. The others keep none of it
};

/// How the ranks that hold the same add up gradients.
enum class ReplicaReduction {
  all_reduce,
  reduce_and_broadcast, ///< on the first of them, which sends out the sum; all gradients at once
};

struct StrategyRow {
  Strategy strategy;
  std::string_view name; ///< as decks write it
  std::string_view meaning;
  StateSharers sharers = StateSharers::none;
  std::optional<Index> stage = 0; ///< of ZeRO (recipe.hpp): what the sharers shard; none: parallel.zero_stage says it
  ReplicaReduction replicas = ReplicaReduction::all_reduce;
  /// Rank 0 reads the data of all ranks, and sends out the state.
  bool main_device = false;

  /// Whether one rank adds up the gradients, all at once.
  constexpr bool collects() const { return replicas == ReplicaReduction::reduce_and_broadcast; }
};

/// In the order of the enumerators.
inline constexpr std::array strategy_table{
    StrategyRow{.strategy = Strategy::naive,
                .name = "naive",
                .meaning = "rank 0 sends out the data, collects all gradients at once and sends out their mean",
                .replicas = ReplicaReduction::reduce_and_broadcast,
                .main_device = true},
    StrategyRow{.strategy = Strategy::ddp, .name = "ddp", .meaning = "every rank holds everything"},
    StrategyRow{.strategy = Strategy::zero,
                .name = "zero",
                .meaning = "ranks share what parallel.zero_stage says",
                .sharers = StateSharers::all,
                .stage = std::nullopt},
    StrategyRow{.strategy = Strategy::hsdp,
                .name = "hsdp",
                .meaning = "each group of parallel.shard_group ranks shares one copy of parameters, gradients and "
                           "optimizer state",
                .sharers = StateSharers::group,
                .stage = 3},
    StrategyRow{.strategy = Strategy::parameter_server,
                .name = "parameter_server",
                .meaning = "the last server.count ranks update: workers push gradients to them and pull parameters",
                .sharers = StateSharers::servers,
                .stage = 1},
};

constexpr StrategyRow const& row_of(Strategy strategy) { return strategy_table.at(static_cast<std::size_t>(strategy)); }
static_assert(std::ranges::all_of(strategy_table,
                                  [](StrategyRow const& row) { return &row_of(row.strategy) == &row; }));

/// The stage that a configuration asks for: 1 shards the optimizer state, 2 gradients too, 3 parameters too.
constexpr Index stage_of(ParallelConfig const& config) {
  return row_of(config.strategy).stage.value_or(config.zero_stage);
}

/// Whether some ranks do nothing but serve.
constexpr bool has_dedicated_servers(ParallelConfig const& config) {
  return row_of(config.strategy).sharers == StateSharers::servers && !config.colocated;
}

/// Whether workers train apart from each other.
constexpr bool is_asynchronous(ParallelConfig const& config) {
  return has_dedicated_servers(config) && config.server_mode != ServerMode::sync;
}

/// Whether servers update unit by unit, and ranks send first what the next forward needs first.
constexpr bool has_priorities(ParallelConfig const& config) {
  return has_dedicated_servers(config) && config.server_schedule == ServerSchedule::priority;
}

/// By priority: of gradients, at most in one push, and of as many parameters in one pull.
constexpr double slice_bytes(ParallelConfig const& config) {
  return config.server_slice_bytes > 0 ? config.server_slice_bytes : config.bucket_bytes;
}

/// The gradients that one reduction takes.
constexpr Granularity granularity_of(ParallelConfig const& config) {
  return row_of(config.strategy).collects() ? Granularity::step : config.granularity;
}

/// Whether ranks communicate while they compute.
constexpr bool overlaps(ParallelConfig const& config) {
  return config.overlap && granularity_of(config) != Granularity::step;
}

/// A strategy with its stage, under the name that `explain` takes.
struct NamedStrategy {
  std::string_view name;
  Strategy strategy;
  Index zero_stage = 0; ///< parallel.zero_stage

  constexpr StrategyRow const& row() const { return row_of(strategy); }
};

inline constexpr std::array named_strategies{
    NamedStrategy{"naive", Strategy::naive},   NamedStrategy{"ddp", Strategy::ddp},
    NamedStrategy{"zero1", Strategy::zero, 1}, NamedStrategy{"zero2", Strategy::zero, 2},
    NamedStrategy{"zero3", Strategy::zero, 3}, NamedStrategy{"fsdp", Strategy::zero, 3},
    NamedStrategy{"hsdp", Strategy::hsdp},     NamedStrategy{"parameter_server", Strategy::parameter_server},
};

/// Null if there is none.
NamedStrategy const* find_strategy(std::string_view name);
/// "naive, ddp, zero1, ..."
std::string strategy_names();

/// "zero 2 all-reduce", "hsdp 2x4": a configuration's strategy with what distinguishes it in all_strategies().
std::string strategy_name(ParallelConfig const& config, Index ranks);

/// All strategies with their stages, partitions and ways to add up gradients. Those that share in groups come with
/// every group size that divides the number of ranks; those with dedicated servers with 1, 2, 3 and half of the ranks.
/// Buckets, overlap and the order of sums have their default values.
std::vector<ParallelConfig> all_strategies(Index ranks);

} // namespace trainstone
