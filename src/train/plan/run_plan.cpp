#include "train/plan/run_plan.hpp"

#include "comm/algorithms/registry.hpp"
#include "core/error.hpp"
#include "core/timeline.hpp"
#include "parallel/engine/parameter_changes.hpp"
#include "parallel/engine/replica_check.hpp"
#include "parallel/program/computed_work.hpp"
#include "parallel/program/step_counts.hpp"
#include "parallel/program/step_launches.hpp"
#include "parallel/program/step_programs.hpp"

namespace trainstone {

namespace {

void add_items(RunPlan& plan, MemoryCategory category, std::vector<PlannedTensor> const& tensors) {
  for (PlannedTensor const& tensor : tensors) plan.memory.push_back({category, tensor.name, tensor.bytes});
}

/// Inputs and targets of every rank, from rank 0.
std::optional<Problem> batch_scatter(ShardPlan const& parallel, MicroBatchShape shape) {
  if (!parallel.layout.main_device) return std::nullopt;
  return even_problem(Collective::scatter, 2 * shape.rows() * parallel.layout.topology.ranks(),
                      parallel.layout.topology);
}

void add_batch_scatter(RunPlan& plan) {
  if (!plan.batch_scatter) return;
  Traffic const sent = predict_traffic(make_schedule(*plan.batch_scatter, batch_scatter_algorithm, plan.rank),
                                       plan.batch_scatter->topology, sizeof(std::int32_t));
  std::string const name =
      fmt::format("micro-batches, {} {}", to_string(Collective::scatter), to_string(batch_scatter_algorithm));
  plan.sent.push_back({name, static_cast<std::uint64_t>(plan.accumulation) * sent});
  plan.validation_sent += sent;
}

void add_work(RunPlan& plan, RunConfig const& config) {
  ShardPlan const& parallel = plan.parallel;
  StepProgram const outline = make_step_outline(parallel);
  auto const work = [&](std::vector<Segment> const& segments, bool trains) {
    MicroBatchShape const shape = trains ? plan.shape : plan.held_out_shape;
    return computed_work(segments, parallel, config.model, shape, plan.gemm, trains);
  };
  ComputedWork const step = work(outline.step, true), evaluation = work(outline.evaluation, false);
  plan.step_flops = step.flops;
  plan.step_work = step.work;
  if (plan.computes())
    plan.model_gemm_flops = static_cast<std::uint64_t>(plan.accumulation) *
                            training_flops(config.model, plan.shape, parallel.parts.options()).gemm;
  plan.step_launches = step.launches + engine_step_launches(parallel);
  plan.update_launches = engine_update_launches(parallel, plan.table);
  plan.update_moves = update_moves(parallel.offload, parallel.layout, parallel.reductions.storage);
  plan.gather_moves = moves_of(outline.step, parallel);
  plan.evaluation_moves = moves_of(outline.evaluation, parallel);
  plan.evaluation_flops = evaluation.flops;
  plan.evaluation_work = evaluation.work;
  plan.evaluation_launches = evaluation.launches + engine_evaluation_launches(parallel);
}

} // namespace

CategoryBytes RunPlan::memory_bytes() const {
  CategoryBytes bytes;
  for (MemoryItem const& item : memory) bytes[item.category] += item.bytes;
  return bytes;
}

Traffic RunPlan::sum_of(std::vector<TrafficRow> const& rows) {
  Traffic sum;
  for (TrafficRow const& row : rows) sum += row.traffic;
  return sum;
}

RunPlan plan_run(RunConfig const& config, Rank rank, Rank ranks) {
  return plan_run(config, rank, Topology::one_node(ranks));
}

RunPlan plan_run(RunConfig const& config, Rank rank, Topology const& topology) {
  return plan_run(resolve_run(config, topology), rank);
}

std::vector<RunPlan> plan_stages(ResolvedRun const& run) {
  std::vector<RunPlan> plans;
  for (Rank stage = 0; stage < run.mesh.pipeline; ++stage)
    plans.push_back(plan_run(run, run.mesh.rank_at(Axis::pipeline, 0, stage)));
  return plans;
}

std::uint64_t RunPlan::kernel_memory() const {
  std::uint64_t const for_files = host_reaches_memory ? 0 : host_bytes; // beside a device's memory
  return memory_bytes().total() - pinned_bytes - for_files;
}

ShardPlan plan_shards(ResolvedRun const& run, ParameterTable const& table, Rank rank) {
  RunConfig const& config = run.config;
  return make_shard_plan(config.parallel, config.optimizer, config.precision, config.comm, table, run.topology, rank,
                         config.batch.accumulation, run.options_of(rank),
                         {run.shape(), config.model.channels, config.model.padded_vocab()});
}

namespace {

enum class ActivationItems { each, sum };

RunPlan plan_allocations(ResolvedRun const& run, Rank rank, ActivationItems activations) {
  RunConfig const& config = run.config;
  MicroBatchShape const shape = run.shape();
  ParameterTable table = run.table_of(rank);
  ShardPlan parallel = plan_shards(run, table, rank);
  RunPlan plan{std::move(table),         shape, rank, run.topology.ranks(), std::move(parallel), run.gemm,
               config.batch.accumulation};
  plan.held_out_shape = {held_out_batch(config).micro, shape.sequence};
  plan.held_out_micro_batches = held_out_batch(config).accumulation;
  plan.batch_scatter = batch_scatter(plan.parallel, shape);
  plan.memory = engine_memory(plan.parallel);
  for (MemoryItem const& item : plan.memory)
    if (item.residence == Residence::host) plan.pinned_bytes += item.bytes;
  OffloadPlan const& offload = plan.parallel.offload;
  if (offload.optimizer == Residence::file) plan.file_bytes += file_bytes(plan.parallel.layout);
  if (offload.parameters == Residence::file) plan.file_bytes += parameter_file_bytes(plan.parallel.layout);
  if (activations == ActivationItems::each)
    add_items(plan, MemoryCategory::activations, planned_activations(plan, config.model));
  else
    plan.memory.push_back(
        {MemoryCategory::activations, "activations",
         std::max(training_activations(plan, config.model), held_out_activations(plan, config.model))});
  plan.memory.push_back({MemoryCategory::buffers, "GEMM scratch", gemm_scratch(plan, config.model)});
  add_items(plan, MemoryCategory::buffers, buffer_plan(plan));
  std::vector<PlannedTensor> const pinned = engine_pinned_buffers(plan.parallel);
  add_items(plan, MemoryCategory::buffers, pinned);
  std::vector<PlannedTensor> const mirrors = mirror_plan(plan);
  add_items(plan, MemoryCategory::data, mirrors);
  plan.pinned_bytes += total_bytes(pinned) + total_bytes(mirrors);
  std::vector<PlannedTensor> const for_files = host_plan(config, rank);
  add_items(plan, MemoryCategory::buffers, for_files);
  plan.host_bytes = total_bytes(for_files);
  add_items(plan, MemoryCategory::data, data_plan(plan));
  return plan;
}

} // namespace

RunPlan plan_memory(ResolvedRun const& run, Rank rank) { return plan_allocations(run, rank, ActivationItems::sum); }

RunPlan plan_traffic(ResolvedRun const& run, Rank rank) {
  RunPlan plan = plan_memory(run, rank);
  plan.sent = step_traffic(plan.parallel);
  plan.control = control_traffic(plan.parallel);
  add_batch_scatter(plan);
  return plan;
}

RunPlan plan_run(ResolvedRun const& run, Rank rank) {
  RunConfig const& config = run.config;
  RunPlan plan = plan_allocations(run, rank, ActivationItems::each);
  plan.start = start_traffic(plan.parallel);
  plan.sent = step_traffic(plan.parallel);
  plan.update_sent = update_traffic(plan.parallel);
  plan.control = control_traffic(plan.parallel);
  plan.replica_check_every = config.parallel.check_replicas;
  plan.replica_check = replica_check_traffic(plan.parallel.layout);
  plan.changes_sent = parameter_changes_traffic(plan.parallel.layout);
  plan.changes_launches = parameter_changes_launches(plan.parallel, plan.table);
  plan.validation_sent = evaluation_traffic(plan.parallel);
  plan.validation_control = evaluation_control(plan.parallel, plan.held_out_micro_batches);
  add_batch_scatter(plan);
  add_work(plan, config);
  return plan;
}

std::uint64_t gemm_scratch(RunPlan const& plan, GptConfig const& model) {
  if (!plan.computes()) return 0;
  std::uint64_t most = gemm_scratch_bytes(model, plan.shape, plan.gemm, plan.storage(), plan.parallel.parts.options());
  if (plan.evaluates_apart())
    most = std::max(most,
                    gemm_scratch_bytes(model, plan.held_out_shape, plan.gemm, plan.storage(), plan.held_out_options()));
  return memory_footprint(most);
}

GptOptions RunPlan::held_out_options() const {
  GptOptions options = parallel.parts.options();
  options.recompute = {Recompute::full};
  return options;
}

std::uint64_t training_activations(RunPlan const& plan, GptConfig const& model) {
  return activation_bytes(model, plan.shape, plan.storage().values, plan.parallel.parts.options(),
                          plan.computed_stage(), plan.activation_copies(), plan.parallel.tensor.own_activations());
}

std::uint64_t held_out_activations(RunPlan const& plan, GptConfig const& model) {
  if (!plan.evaluates_apart()) return 0;
  return activation_bytes(model, plan.held_out_shape, plan.storage().values, plan.held_out_options(),
                          plan.computed_stage(), plan.activation_copies(), plan.parallel.tensor.own_activations());
}

std::vector<PlannedTensor> planned_activations(RunPlan const& plan, GptConfig const& model) {
  std::vector<PlannedTensor> tensors =
      activation_plan(model, plan.shape, plan.storage().values, plan.parallel.parts.options(), plan.computed_stage(),
                      plan.activation_copies(), plan.parallel.tensor.own_activations());
  std::uint64_t const training = total_bytes(tensors), held_out = held_out_activations(plan, model);
  if (held_out > training) tensors.push_back({"more for validations", held_out - training});
  return tensors;
}

std::vector<PlannedTensor> buffer_plan(RunPlan const& plan) {
  std::vector<PlannedTensor> tensors = engine_buffers(plan.parallel);
  tensors.push_back(planned<double>("loss sums", plan.most_micro_batches()));
  tensors.push_back(planned<std::int64_t>("non-finite count", 1));
  return tensors;
}

std::vector<PlannedTensor> host_plan(RunConfig const& config, Rank rank) {
  std::vector<PlannedTensor> items;
  if (!config.trace.file.empty())
    items.push_back({"trace.file", Recording::bytes_of(static_cast<std::size_t>(config.trace.events))});
  if (!config.model_setup.save.empty() && rank == 0)
    items.push_back({"model.save", static_cast<std::uint64_t>(saved_at_a_time) * sizeof(float)});
  return items;
}

std::vector<PlannedTensor> data_plan(RunPlan const& plan) {
  Index const micro_batches = plan.computes() ? plan.most_micro_batches() : 0;
  Index const rows = plan.computes() ? plan.accumulation * plan.shape.rows() : 0; // as many in a validation
  std::vector<PlannedTensor> tensors{planned<std::int32_t>("tokens", rows), planned<std::int32_t>("targets", rows),
                                     planned<std::int32_t>("rows by token", rows),
                                     planned<std::int32_t>("buckets", rows + micro_batches),
                                     planned<std::int32_t>("tokens of buckets", rows)};
  if (plan.batch_scatter)
    tensors.push_back(planned<std::int32_t>("micro-batches of all ranks", plan.batch_scatter->elements()));
  return tensors;
}

std::vector<PlannedTensor> mirror_plan(RunPlan const& plan) {
  std::vector<PlannedTensor> tensors;
  if (host_reaches_memory) return tensors;
  for (PlannedTensor const& tensor : data_plan(plan)) tensors.push_back({tensor.name + ", mirror", tensor.bytes});
  return tensors;
}

} // namespace trainstone
