#include "train/plan/resolved_run.hpp"

#include "kernels/common/config.hpp"
#include "model/work.hpp"
#include "parallel/plan/pipeline_plan.hpp"
#include "parallel/plan/recipe.hpp"

#include <map>

namespace trainstone {

namespace {

GemmChoice gemm_choice(KernelConfig const& kernels, MachineChoices const& machine) {
  if (kernels.gemm != gemm_measured) return parse_gemm_provider(kernels.gemm);
  return machine.gemm ? *machine.gemm : GemmChoice(GemmProvider::automatic);
}

/// FLOPs of a micro-batch, with what blocks compute again.
BlockCosts costs_of(RunConfig const& config, MicroBatchShape shape) {
  GptOptions const& options = config.model_options;
  auto const flops = [&](PartKind part, Pass pass, Recompute again = Recompute::none) {
    return static_cast<double>(
        flops_of(part_kernels({.part = part, .pass = pass, .recompute = again}, config.model, shape, options)).total());
  };
  auto const of_part = [&](PartKind part) { return flops(part, Pass::forward) + flops(part, Pass::backward); };
  BlockCosts costs{.blocks = {}, .embed = of_part(PartKind::embed), .head = of_part(PartKind::head)};
  if (options.splits_loss()) costs.head += flops(PartKind::head, Pass::loss); // the logits
  std::map<Recompute, double> of_block;
  for (std::int64_t block = 0; block < config.model.layers; ++block) {
    Recompute const again = options.recompute_of(block);
    auto const [found, is_new] = of_block.try_emplace(again, 0);
    if (is_new)
      for (PartKind const part : {PartKind::attention, PartKind::mlp})
        found->second += of_part(part) + flops(part, Pass::recompute, again);
    costs.blocks.push_back(found->second);
  }
  return costs;
}

} // namespace

MicroBatchShape micro_batch_shape(RunConfig const& config) {
  return {config.batch.micro, config.data.sequence > 0 ? config.data.sequence : config.model.context};
}

GptOptions with_attention_provider(RunConfig const& config) {
  GptOptions options = config.model_options;
  if (options.attention != AttentionKind::flash) return options;
  AttentionNeed need =
      attention_need(config.model, micro_batch_shape(config), state_types(config.precision).parameters, options);
  need.heads = config.model.heads / config.parallel.slices();
  options.attention_provider = resolve_attention_provider(config.kernels.attention, need);
  return options;
}

ResolvedRun resolve_run(RunConfig const& config, Topology const& topology, MachineChoices const& machine) {
  ResolvedRun run{.config = config,
                  .topology = topology,
                  .mesh = mesh_of(config.parallel, topology.ranks()),
                  .stages = {},
                  .buffers = machine.buffers ? *machine.buffers : resolve_buffers(config.comm.buffers),
                  .gemm = gemm_choice(config.kernels, machine)};
  run.config.model = config.model.in_slices(config.parallel.slices());
  run.config.model_options = with_attention_provider(config);
  run.config.model_options.slices = {.blocks = config.parallel.slices(),
                                     .ranks = run.mesh.tensor > 1 ? run.mesh.tensor : config.tensor_ranks_alone,
                                     .feature_parts =
                                         run.mesh.features > 1 ? run.mesh.features : config.feature_ranks_alone};
  run.config.model_options.sequence_parallel = config.parallel.sequence;
  run.config.model_options.row_chunks = config.parallel.tensor_row_chunks;
  run.config.model_options.keep_gathered = config.parallel.tensor_keep_gathered;
  run.config.model_options.wide_sums = config.parallel.reduction == ReductionMode::ordered;
  run.stages = config.parallel.pipeline > 1
                   ? model_stages(config.parallel, costs_of(run.config, run.shape()), config.batch.accumulation)
                   : std::vector{ModelStage::whole(config.model)};
  run.config.comm.buffers = to_string(run.buffers);
  for (auto const& [key, algorithm] : machine.algorithms)
    run.config.comm = with_algorithm(run.config.comm, key, algorithm);
  return run;
}

} // namespace trainstone
