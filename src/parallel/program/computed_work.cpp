#include "parallel/program/computed_work.hpp"

#include <algorithm>
#include <map>
#include <optional>

namespace trainstone {

namespace {

/// Pieces make one pass, of which the first one stands for all.
std::optional<PartPass> part_pass(Instruction const& one, ShardPlan const& plan, bool trains) {
  if (computes(one.act) && !begins_pass(one)) return std::nullopt;
  auto const of_part = [&](Pass pass) {
    Part const part = plan.parts[one.subject];
    return PartPass{.part = part.kind, .pass = pass, .trains = trains, .recompute = plan.parts.recompute(part)};
  };
  switch (one.act) {
  case Act::forward: return of_part(Pass::forward);
  case Act::recompute: return of_part(Pass::recompute);
  case Act::loss: return PartPass{.part = PartKind::head, .pass = Pass::loss, .trains = trains};
  case Act::backward: {
    PartPass backward = of_part(Pass::backward);
    if (plan.reductions.adds_in_place() && one.micro_batch > 0) backward.mode = Write::add;
    return backward;
  }
  default: return std::nullopt;
  }
}

/// How often each pass is computed.
std::map<PartPass, std::uint64_t> passes_of(std::vector<Segment> const& segments, ShardPlan const& plan, bool trains) {
  std::map<PartPass, std::uint64_t> counts;
  auto const count = [&](Instruction const& one, std::uint64_t times) {
    if (std::optional<PartPass> const pass = part_pass(one, plan, trains)) counts[*pass] += times;
  };
  for (Segment const& segment : segments)
    for (Instruction const& instruction : segment.instructions) { // all but the first time are alike
      count(instruction, 1);
      if (segment.times > 1) count(later(instruction, 1), static_cast<std::uint64_t>(segment.times - 1));
    }
  return counts;
}

std::vector<KernelUse> kernels_of(PartPass const& pass, ShardPlan const& plan, GptConfig const& model,
                                  MicroBatchShape shape) {
  return part_kernels(pass, model, shape, plan.parts.options(),
                      ModelStorage{plan.layout.types.parameters, plan.reductions.storage});
}

} // namespace

ComputedWork computed_work(std::vector<Segment> const& segments, ShardPlan const& plan, GptConfig const& model,
                           MicroBatchShape shape, GemmChoice const& gemm, bool trains) {
  ComputedWork work;
  for (auto const& [pass, times] : passes_of(segments, plan, trains)) {
    std::vector<KernelUse> const kernels = kernels_of(pass, plan, model, shape);
    ModelFlops const flops = flops_of(kernels);
    work.flops.gemm += times * flops.gemm;
    work.flops.attention += times * flops.attention;
    PerPhase<PhaseWork> const of_pass = work_of(kernels, gemm);
    for (Phase const phase : phases) {
      work.work[phase].flops += times * of_pass[phase].flops;
      work.work[phase].bytes += times * of_pass[phase].bytes;
    }
    work.launches += times * (launches_of(kernels, gemm) + (pass.pass == Pass::loss ? 1 : 0));
  }
  return work;
}

std::vector<ComputedKernel> computed_kernels(std::vector<Segment> const& segments, ShardPlan const& plan,
                                             GptConfig const& model, MicroBatchShape shape, GemmChoice const& gemm,
                                             bool trains) {
  std::vector<ComputedKernel> kernels;
  for (auto const& [pass, times] : passes_of(segments, plan, trains))
    for (KernelUse const& use : kernels_of(pass, plan, model, shape))
      for (KernelUse const& started : started_kernels(use, gemm)) {
        auto kernel = std::ranges::find(kernels, started.name, &ComputedKernel::name);
        if (kernel == kernels.end())
          kernel = kernels.insert(kernel, {.name = started.name, .phase = started.work.phase});
        std::uint64_t const launches = times * static_cast<std::uint64_t>(started.count);
        kernel->launches += launches;
        kernel->work.flops += launches * started.work.flops;
        kernel->work.bytes += launches * started.work.bytes;
      }
  return kernels;
}

} // namespace trainstone
