#include "train/run_plan.hpp"

#include "comm/registry.hpp"
#include "core/error.hpp"
#include "parallel/data_parallel.hpp"

namespace trainstone {

namespace {

void add_items(RunPlan& plan, MemoryCategory category, std::vector<PlannedTensor> const& tensors) {
  for (PlannedTensor const& tensor : tensors) plan.memory.push_back({category, tensor.name, tensor.bytes});
}

ModelFlops times(Index count, ModelFlops flops) {
  return {static_cast<std::uint64_t>(count) * flops.gemm, static_cast<std::uint64_t>(count) * flops.attention};
}

/// One fp64 value, agreed on by all ranks (comm/control.hpp).
Traffic one_value_traffic(Rank rank, Topology const& topology) {
  Problem const problem{
      .collective = Collective::all_reduce, .partition = Partition::even(1, topology.ranks()), .topology = topology};
  return predict_traffic(make_schedule(problem, Algorithm::ring, rank), topology, sizeof(double));
}

GradientReduction gradient_reduction(RunConfig const& config, Topology const& topology) {
  Algorithm const all_reduce = parse_algorithm(Collective::all_reduce, config.comm.allreduce);
  return {all_reduce, topology, find_algorithm(Collective::all_reduce, all_reduce).uses_shared_memory()};
}

} // namespace

CategoryBytes RunPlan::memory_bytes() const {
  CategoryBytes bytes;
  for (MemoryItem const& item : memory) bytes[item.category] += item.bytes;
  return bytes;
}

RunPlan plan_run(RunConfig const& config, Rank rank, Rank ranks) {
  return plan_run(config, rank, Topology::one_node(ranks));
}

RunPlan plan_run(RunConfig const& config, Rank rank, Topology const& topology) {
  Rank const ranks = topology.ranks();
  MicroBatchShape const shape{config.batch.micro,
                              config.data.sequence > 0 ? config.data.sequence : config.model.context};
  GradientReduction const reduction = gradient_reduction(config, topology);
  GemmProvider const gemm = resolve_gemm_provider(parse_gemm_provider(config.kernels.gemm));
  RunPlan plan{ParameterTable(config.model, ranks),
               shape,
               rank,
               ranks,
               reduction,
               gemm,
               config.batch.accumulation,
               {},
               {},
               {},
               {},
               {},
               {}};

  CategoryBytes const state = model_state_bytes(plan.table);
  for (MemoryCategory category : {MemoryCategory::parameters, MemoryCategory::gradients, MemoryCategory::optimizer})
    plan.memory.push_back({category, std::string(to_string(category)), state[category]});
  add_items(plan, MemoryCategory::activations, activation_plan(config.model, shape));
  plan.memory.push_back(
      {MemoryCategory::buffers, "GEMM scratch", Arena::footprint(gemm_scratch_bytes(config.model, shape, gemm))});
  add_items(plan, MemoryCategory::buffers, buffer_plan(plan));
  if (reduction.shared_memory)
    plan.memory.push_back({MemoryCategory::buffers, "flags of shared memory", shared_gradients_overhead(plan.table)});
  add_items(plan, MemoryCategory::data, data_plan(shape));

  plan.gradients = DataParallel::traffic(plan.table, reduction, rank);
  plan.step_control = one_value_traffic(rank, topology);
  plan.validation_control = one_value_traffic(rank, topology);
  plan.step_flops = times(config.batch.accumulation, training_flops(config.model, shape));
  plan.evaluation_flops = evaluation_flops(config.model, shape);
  return plan;
}

std::vector<PlannedTensor> buffer_plan(RunPlan const& plan) {
  std::vector<PlannedTensor> tensors = DataParallel::buffer_plan(plan.table, plan.reduction, plan.rank);
  tensors.push_back(planned<double>("loss sum", 1));
  return tensors;
}

std::vector<PlannedTensor> data_plan(MicroBatchShape shape) {
  Index const rows = shape.rows();
  return {planned<std::int32_t>("tokens", rows), planned<std::int32_t>("targets", rows),
          planned<std::int32_t>("rows by token", rows), planned<std::int32_t>("buckets", rows + 1),
          planned<std::int32_t>("tokens of buckets", rows)};
}

} // namespace trainstone
