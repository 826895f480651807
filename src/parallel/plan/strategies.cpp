#include "parallel/plan/strategies.hpp"

#include "parallel/plan/mesh.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace trainstone {

std::string_view to_string(Strategy strategy) { return row_of(strategy).name; }

NamedStrategy const* find_strategy(std::string_view name) {
  auto const found = std::ranges::find(named_strategies, name, &NamedStrategy::name);
  return found == named_strategies.end() ? nullptr : &*found;
}

std::string strategy_names() {
  std::vector<std::string_view> names;
  for (NamedStrategy const& strategy : named_strategies) names.push_back(strategy.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string strategy_name(ParallelConfig const& config, Index ranks) {
  std::string text(to_string(config.strategy));
  Mesh const mesh = mesh_of(config, ranks);
  if (row_of(config.strategy).sharers == StateSharers::group) text += fmt::format(" {}x{}", mesh.replica, mesh.shard);
  if (config.zero_stage > 0) text += fmt::format(" {}", config.zero_stage);
  if (config.updates_alone()) text += " main";
  if (mesh.servers > 0) text += fmt::format(" {}+{}", mesh.data(), mesh.servers);
  if (config.colocated) text += " colocated";
  if (config.gradient_reduction == GradientReductionWay::all_reduce) text += " all-reduce";
  if (config.partition == StatePartition::inter_layer) text += " inter-layer";
  return text;
}

std::vector<ParallelConfig> all_strategies(Index ranks) {
  auto const all_reduce = GradientReductionWay::all_reduce;
  auto const inter_layer = StatePartition::inter_layer;
  std::vector<ParallelConfig> all{{},
                                  {.strategy = Strategy::naive},
                                  {.strategy = Strategy::naive, .naive_update = NaiveUpdate::main},
                                  {.strategy = Strategy::zero, .zero_stage = 1},
                                  {.strategy = Strategy::zero, .zero_stage = 1, .gradient_reduction = all_reduce},
                                  {.strategy = Strategy::zero, .zero_stage = 2},
                                  {.strategy = Strategy::zero, .zero_stage = 2, .gradient_reduction = all_reduce},
                                  {.strategy = Strategy::zero, .zero_stage = 3}};
  for (std::int64_t const stage : {1, 2, 3})
    all.push_back({.strategy = Strategy::zero, .zero_stage = stage, .partition = inter_layer});
  all.push_back(
      {.strategy = Strategy::zero, .zero_stage = 2, .partition = inter_layer, .gradient_reduction = all_reduce});
  for (Index servers = 1; servers < ranks && servers <= std::max<Index>(3, ranks / 2); ++servers)
    if (servers <= 3 || 2 * servers == ranks)
      all.push_back({.strategy = Strategy::parameter_server, .servers = servers});
  all.push_back({.strategy = Strategy::parameter_server, .colocated = true});
  for (StrategyRow const& row : strategy_table)
    for (Index group = 2; group < ranks && row.sharers == StateSharers::group; ++group)
      if (ranks % group == 0) all.push_back({.strategy = row.strategy, .shard_group = group});
  return all;
}

} // namespace trainstone
