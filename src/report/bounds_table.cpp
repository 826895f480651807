#include "report/bounds_table.hpp"

#include "core/roofline.hpp"
#include "parallel/program/computed_work.hpp"
#include "parallel/program/step_programs.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace trainstone {

namespace {

BoundedKernel bounded(std::string name, std::uint64_t launches, PhaseWork const& work, ComputeRates const& one) {
  KernelBound const bound = bound_kernel(static_cast<double>(work.flops), static_cast<double>(work.bytes),
                                         one.gemm_flops_per_second, one.bandwidth_bytes_per_second);
  return {std::move(name), launches, work, bound.seconds, bound.peak};
}

std::string line_of(BoundedKernel const& kernel, double all_seconds) {
  return fmt::format("  {:<36} {:>8} {:>12.2f} {:>12.2f} {:>10.3f} {:>6.1f}  {}\n", kernel.name, kernel.launches,
                     1e-9 * static_cast<double>(kernel.work.flops), 1e-6 * static_cast<double>(kernel.work.bytes),
                     1e3 * kernel.seconds, all_seconds > 0 ? 100 * kernel.seconds / all_seconds : 0, kernel.peak);
}

} // namespace

std::vector<BoundedKernel> bounded_kernels(ResolvedRun const& run, RunPlan const& plan, ComputeRates const& one) {
  std::vector<BoundedKernel> kernels;
  StepProgram const outline = make_step_outline(plan.parallel);
  for (ComputedKernel const& kernel :
       computed_kernels(outline.step, plan.parallel, run.config.model, plan.shape, plan.gemm, true))
    kernels.push_back(bounded(kernel.name, kernel.launches, kernel.work, one));
  if (plan.update_launches > 0)
    kernels.push_back(bounded("update", plan.update_launches, update_work(plan, run.config.optimizer), one));
  std::ranges::stable_sort(kernels, std::ranges::greater(), &BoundedKernel::seconds);
  return kernels;
}

std::string bounds_text(std::vector<BoundedKernel> const& kernels, ComputeRates const& one, std::int64_t tokens) {
  BoundedKernel all{.name = "all"};
  for (BoundedKernel const& kernel : kernels) {
    all.launches += kernel.launches;
    all.work.flops += kernel.work.flops;
    all.work.bytes += kernel.work.bytes;
    all.seconds += kernel.seconds;
  }
  std::string text = fmt::format("kernels of a step at {:.4g} TFLOP/s and {:.4g} GB/s\n"
                                 "  {:<36} {:>8} {:>12} {:>12} {:>10} {:>6}  {}\n",
                                 1e-12 * one.gemm_flops_per_second, 1e-9 * one.bandwidth_bytes_per_second, "kernel",
                                 "launches", "GFLOP", "MB", "least ms", "%", "bound by");
  for (BoundedKernel const& kernel : kernels) text += line_of(kernel, all.seconds);
  text += line_of(all, all.seconds);
  if (all.seconds > 0)
    text += fmt::format("  no more than {:.4g} tokens/s; sums of gradients, the norm and messages are not in it\n",
                        static_cast<double>(tokens) / all.seconds);
  return text;
}

} // namespace trainstone
