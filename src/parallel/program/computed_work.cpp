#include "parallel/program/computed_work.hpp"

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

} // namespace

ComputedWork computed_work(std::vector<Segment> const& segments, ShardPlan const& plan, GptConfig const& model,
                           MicroBatchShape shape, GemmChoice const& gemm, bool trains) {
  std::map<PartPass, std::uint64_t> counts;
  auto const count = [&](Instruction const& one, std::uint64_t times) {
    if (std::optional<PartPass> const pass = part_pass(one, plan, trains)) counts[*pass] += times;
  };
  for (Segment const& segment : segments)
    for (Instruction const& instruction : segment.instructions) { // all but the first time are alike
      count(instruction, 1);
      if (segment.times > 1) count(later(instruction, 1), static_cast<std::uint64_t>(segment.times - 1));
    }
  ModelStorage const storage{plan.layout.types.parameters, plan.reductions.storage};
  ComputedWork work;
  for (auto const& [pass, times] : counts) {
    std::vector<KernelUse> const kernels = part_kernels(pass, model, shape, plan.parts.options(), storage);
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

} // namespace trainstone
