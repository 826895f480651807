#include "parallel/plan/shard_plan.hpp"

#include "core/error.hpp"
#include "parallel/plan/parallel_problems.hpp"
#include "parallel/plan/strategies.hpp"

namespace trainstone {

namespace {

Ownership ownership_of(ParallelConfig const& parallel, StateLayout const& layout) {
  if (layout.mesh.servers > 0) return Ownership::of_servers(layout.groups, layout.mesh.shard, layout.mesh.servers);
  if (parallel.updates_alone()) return Ownership::of_one(layout.groups, layout.mesh.shard, 0);
  if (parallel.partition == StatePartition::inter_layer)
    return Ownership::of_units(layout.groups, layout.units, layout.mesh.shard);
  return Ownership::of_parts(layout.groups, layout.mesh.shard);
}

/// With itself alone a rank shares nothing.
Sharding sharding_of(ParallelConfig const& parallel, Mesh const& mesh) {
  Index const stage = stage_of(parallel);
  bool const shares = mesh.shard > 1;
  // a rank that shares with nobody has all parameters with the kernels, unless its share lies elsewhere
  bool const moves = parallel.offload_parameters != Residence::kernels;
  return {.parameters = stage >= 3 && (shares || moves), .gradients = stage >= 2 && shares};
}

/// Replicas of a main device have their state from it, by the default algorithm.
std::vector<PlannedCollective> plan_start(AlgorithmChoice choice, StateLayout const& layout) {
  std::vector<PlannedCollective> broadcasts;
  if (!layout.main_device || layout.mesh.replica == 1) return broadcasts;
  choice.comm = {};
  Topology const line = layout.line(Axis::replica);
  for (ParameterGroup const& group : layout.groups)
    broadcasts.push_back(planned_collective(choice, Axis::replica, line, Collective::broadcast, group.padded));
  return broadcasts;
}

} // namespace

ShardPlan make_shard_plan(ParallelConfig const& parallel, OptimizerConfig const& optimizer,
                          PrecisionConfig const& precision, CommConfig const& comm, ParameterTable const& table,
                          Topology const& topology, Rank rank, Index rank_micro_batches, GptOptions const& options,
                          StreamShape const& stream) {
  Mesh const mesh = mesh_of(parallel, topology.ranks());
  if (auto const problem = find_parallel_problem(parallel, comm, mesh.data(), rank_micro_batches))
    throw InputError(problem->message);
  ShardPlan plan;
  plan.message_buffers = resolve_buffers(comm.buffers);
  StateLayout& layout = plan.layout;
  layout.mesh = mesh;
  layout.topology = topology;
  layout.rank = rank;
  layout.groups = table.groups();
  layout.units = table.units();
  layout.model_sections = table.model_sections();
  layout.ownership = ownership_of(parallel, layout);
  layout.sharding = sharding_of(parallel, mesh);
  layout.types = state_types(precision);
  layout.moments = optimizer.moments();
  layout.rank_micro_batches = rank_micro_batches;
  layout.main_device = row_of(parallel.strategy).main_device && mesh.data() > 1;

  AlgorithmChoice const choice{.comm = comm,
                               .ordered = parallel.reduction == ReductionMode::ordered,
                               .main_device = layout.main_device,
                               .direct = parallel.colocated,
                               .servers = mesh.servers};
  for (AlgorithmKey const& key : algorithm_keys) choice.of(key); // unknown names are refused, used or not
  plan.reductions = make_reduction_plan(parallel, choice, table, layout);
  plan.gathers =
      make_gather_plan(parallel.prefetch, plan.by_priority() ? &plan.reductions.buckets : nullptr, choice, layout);
  plan.state_broadcasts = plan_start(choice, layout);
  plan.parts = PartTable(table, options);
  plan.tensor = make_tensor_plan(choice, layout, plan.parts, stream);
  plan.pipeline = make_pipeline_plan(parallel, layout, stream.own_elements(options));
  plan.offload = make_offload_plan(parallel.offload_optimizer, parallel.offload_parameters,
                                   parallel.offload_chunk_bytes, parallel.offload_files(), layout);
  plan.overlap = overlaps(parallel);
  return plan;
}

} // namespace trainstone
