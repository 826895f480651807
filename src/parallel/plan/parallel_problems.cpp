#include "parallel/plan/parallel_problems.hpp"

#include "comm/algorithms/registry.hpp"
#include "core/error.hpp"
#include "parallel/plan/strategies.hpp"

#include <bit>

namespace trainstone {

namespace {

using Found = std::optional<ConfigProblem>;

bool is_power_of_two(Index value) { return std::has_single_bit(static_cast<std::uint64_t>(value)); }

Found strategy_problem(ParallelConfig const& parallel, Index ranks) {
  StrategyRow const& row = row_of(parallel.strategy);
  bool const takes_stage = !row.stage, takes_group = row.sharers == StateSharers::group;
  if (takes_stage && parallel.zero_stage == 0)
    return problem("parallel.zero_stage", "parallel.strategy = \"{}\" needs parallel.zero_stage: 1, 2 or 3", row.name);
  if (!takes_stage && parallel.zero_stage != 0)
    return problem("parallel.zero_stage",
                   "parallel.zero_stage = {} belongs to parallel.strategy = \"zero\", not to \"{}\"",
                   parallel.zero_stage, row.name);
  if (takes_group && parallel.shard_group == 0)
    return problem("parallel.shard_group",
                   "parallel.strategy = \"{}\" needs parallel.shard_group, a divisor of the {} data ranks", row.name,
                   ranks);
  if (!takes_group && parallel.shard_group != 0)
    return problem("parallel.shard_group",
                   "parallel.shard_group = {} belongs to parallel.strategy = \"hsdp\", not to \"{}\"",
                   parallel.shard_group, row.name);
  if (takes_group && ranks % parallel.shard_group != 0)
    return problem("parallel.shard_group",
                   "parallel.shard_group = {} does not divide the {} data ranks; nearest legal values: {}",
                   parallel.shard_group, ranks, nearest_divisors(ranks, parallel.shard_group));
  if (parallel.colocated && parallel.servers != 1)
    return problem("server.count",
                   "server.count = {} is of dedicated servers: with server.colocated = true every rank serves; legal "
                   "values: 1, or server.colocated = false",
                   parallel.servers);
  bool const is_whole = row.sharers == StateSharers::none && !row.collects();
  bool const collects_step = row.collects() && parallel.granularity == Granularity::step;
  if (parallel.granularity != Granularity::bucket && !is_whole && !collects_step)
    return problem("parallel.granularity",
                   "parallel.granularity other than \"bucket\" belongs to parallel.strategy = \"ddp\", not to \"{}\"",
                   to_string(parallel.strategy));
  bool const all_reduces = parallel.gradient_reduction == GradientReductionWay::all_reduce;
  if (all_reduces && !(row.sharers == StateSharers::all && stage_of(parallel) <= 2))
    return problem("parallel.gradient_reduction", "parallel.gradient_reduction = \"all_reduce\" belongs to strategy "
                                                  "\"zero\" with parallel.zero_stage = 1 or 2");
  return std::nullopt;
}

Found partition_problem(ParallelConfig const& parallel) {
  if (parallel.partition != StatePartition::inter_layer) return std::nullopt;
  if (row_of(parallel.strategy).sharers != StateSharers::all)
    return problem("parallel.partition",
                   "parallel.partition = \"inter_layer\" belongs to parallel.strategy = \"zero\"; legal value with "
                   "\"{}\": \"intra_layer\"",
                   to_string(parallel.strategy));
  return std::nullopt;
}

Found reduce_problem(ParallelConfig const& parallel, Index ranks, Index rank_micro_batches) {
  bool const ordered = parallel.reduction == ReductionMode::ordered;
  StrategyRow const& row = row_of(parallel.strategy);
  bool const gradients_sharded = row.sharers == StateSharers::all && stage_of(parallel) >= 2;
  if (parallel.reduce == ReduceWhen::last && gradients_sharded && ranks > 1 && rank_micro_batches > 1)
    return problem("parallel.reduce",
                   "parallel.reduce = \"last\" would keep whole gradients over {} micro-batches, which stage {} does "
                   "not; legal values: \"each\", or batch.accumulation = 1",
                   rank_micro_batches, parallel.zero_stage);
  if ((row.collects() || has_dedicated_servers(parallel)) && parallel.reduce == ReduceWhen::each)
    return problem("parallel.reduce",
                   "parallel.strategy = \"{}\" collects gradients once per step: legal value of parallel.reduce "
                   "\"last\"",
                   row.name);
  if (ordered && parallel.reduce == ReduceWhen::each && !gradients_sharded)
    return problem("parallel.reduce", "parallel.reduction = \"ordered\" decides by the strategy: legal value \"last\"");
  return std::nullopt;
}

Found ordered_problem(ParallelConfig const& parallel, CommConfig const& comm, Index ranks, Index rank_micro_batches) {
  if (parallel.reduction != ReductionMode::ordered) return std::nullopt;
  if (!is_power_of_two(ranks))
    return problem(
        "parallel.reduction",
        "parallel.reduction = \"ordered\" needs a power of two of data ranks, not {}; nearest legal values: {}", ranks,
        nearest_powers_of_two(ranks));
  if (!is_power_of_two(rank_micro_batches))
    return problem("parallel.reduction",
                   "parallel.reduction = \"ordered\" needs a power of two of micro-batches per step (batch.global / "
                   "batch.micro), not {}; nearest legal values: {}",
                   ranks * rank_micro_batches, nearest_powers_of_two(ranks * rank_micro_batches));
  for (AlgorithmKey const& key : algorithm_keys) {
    std::string const& value = comm.*key.member;
    if (value == algorithm_measured)
      return problem(key.name,
                     "{} = \"measured\" may choose another algorithm on another day: parallel.reduction = \"ordered\" "
                     "takes \"auto\" or an algorithm by name",
                     key.name);
    if (!adds_up(key.collective) || value == "auto" || value == "ordered" || value == "shared") continue;
    return problem(key.name,
                   "{} = \"{}\" does not add up in the order that parallel.reduction = \"ordered\" asks for; legal "
                   "values: ordered, shared, auto",
                   key.name, value);
  }
  return std::nullopt;
}

Found shared_problem(ParallelConfig const& parallel, CommConfig const& comm, Index ranks) {
  bool const has_both_axes = row_of(parallel.strategy).sharers == StateSharers::group && parallel.shard_group > 1 &&
                             parallel.shard_group < ranks;
  if (!has_both_axes || parallel.reduce != ReduceWhen::each || !names_algorithm(comm.allreduce)) return std::nullopt;
  if (!find_algorithm(Collective::all_reduce, parse_algorithm(Collective::all_reduce, comm.allreduce))
           .uses_shared_memory())
    return std::nullopt;
  return problem(
      "comm.allreduce",
      "comm.allreduce = \"{}\" adds up in memory that replicas share, and fresh gradients lie in their shard "
      "group's; legal values with parallel.reduce = \"each\": ring and others that send messages",
      comm.allreduce);
}

Found offload_problem(ParallelConfig const& parallel) {
  StrategyRow const& row = row_of(parallel.strategy);
  if (parallel.offload_parameters != Residence::kernels && stage_of(parallel) < 3)
    return problem("memory.offload_param",
                   "memory.offload_param = \"{}\": parallel.strategy = \"{}\"{} keeps all parameters with the kernels "
                   "of every rank; nearest legal values: none, or strategy \"zero\" with zero_stage = 3, or \"hsdp\"",
                   to_string(parallel.offload_parameters), row.name,
                   parallel.zero_stage > 0 ? fmt::format(" with zero_stage = {}", parallel.zero_stage) : "");
  bool const is_legal = !row.main_device && row.sharers != StateSharers::servers;
  if (parallel.offload_optimizer == Residence::kernels || is_legal) return std::nullopt;
  return problem("memory.offload_optimizer",
                 "memory.offload_optimizer = \"{}\": parallel.strategy = \"{}\" keeps the optimizer's state with the "
                 "kernels; nearest legal values: none, or strategy \"ddp\", \"zero\" or \"hsdp\"",
                 to_string(parallel.offload_optimizer), row.name);
}

} // namespace

std::optional<ConfigProblem> find_servers_problem(ParallelConfig const& parallel, Index ranks) {
  if (!has_dedicated_servers(parallel) || (parallel.servers >= 1 && parallel.servers < ranks)) return std::nullopt;
  if (ranks == 1)
    return problem(
        "parallel.strategy",
        "parallel.strategy = \"{}\" needs a worker and a server, and there is 1 rank; legal values: 2 ranks or "
        "more, or server.colocated = true",
        row_of(parallel.strategy).name);
  return problem("server.count", "server.count = {} leaves no worker among {} ranks; nearest legal value: {}",
                 parallel.servers, ranks, ranks - 1);
}

std::optional<ConfigProblem> find_sharing_problem(ParallelConfig const& parallel, char const* key, Index ranks,
                                                  std::string_view name, std::string_view what) {
  StrategyRow const& row = row_of(parallel.strategy);
  if (row.main_device || row.sharers == StateSharers::servers)
    return problem(key,
                   "{} = {}: parallel.strategy = \"{}\" has no {}; nearest legal values: {} 1, or strategy \"ddp\", "
                   "\"zero\" or \"hsdp\"",
                   key, ranks, row.name, what, name);
  if (parallel.partition == StatePartition::inter_layer)
    return problem("parallel.partition",
                   "parallel.partition = \"inter_layer\" has no {}; legal value with {} = {}: \"intra_layer\"", what,
                   key, ranks);
  return std::nullopt;
}

std::optional<ConfigProblem> find_parallel_problem(ParallelConfig const& parallel, CommConfig const& comm, Index ranks,
                                                   Index rank_micro_batches) {
  if (Found found = strategy_problem(parallel, ranks)) return found;
  if (Found found = partition_problem(parallel)) return found;
  if (Found found = offload_problem(parallel)) return found;
  if (Found found = reduce_problem(parallel, ranks, rank_micro_batches)) return found;
  if (Found found = ordered_problem(parallel, comm, ranks, rank_micro_batches)) return found;
  return shared_problem(parallel, comm, ranks);
}

} // namespace trainstone
