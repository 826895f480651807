#include "parallel/plan/all_strategies.hpp"

namespace trainstone {

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
  for (Index group = 2; group < ranks; ++group)
    if (ranks % group == 0) all.push_back({.strategy = Strategy::hsdp, .shard_group = group});
  return all;
}

} // namespace trainstone
