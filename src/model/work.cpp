#include "model/work.hpp"

#include <algorithm>

namespace trainstone {

namespace {

std::vector<GemmUse> products_of(std::vector<KernelUse> const& uses, std::set<Pass> const& passes) {
  std::vector<GemmUse> products;
  for (KernelUse const& use : uses)
    if (use.product && passes.contains(use.pass)) products.push_back({use.name, *use.product, use.count});
  return products;
}

} // namespace

ModelFlops flops_of(std::vector<KernelUse> const& uses) {
  ModelFlops sum;
  for (KernelUse const& use : uses) {
    std::uint64_t const flops = use.work.flops * static_cast<std::uint64_t>(use.count);
    if (use.work.phase == Phase::gemm) sum.gemm += flops;
    if (use.work.phase == Phase::attention) sum.attention += flops;
  }
  return sum;
}

PerPhase<PhaseWork> work_of(std::vector<KernelUse> const& uses, GemmChoice const& gemm) {
  PerPhase<PhaseWork> sum;
  for (KernelUse const& use : uses)
    for (KernelUse const& started : started_kernels(use, gemm)) {
      auto const count = static_cast<std::uint64_t>(started.count);
      sum[started.work.phase].flops += count * started.work.flops;
      sum[started.work.phase].bytes += count * started.work.bytes;
    }
  return sum;
}

std::uint64_t launches_of(std::vector<KernelUse> const& uses, GemmChoice const& gemm) {
  std::uint64_t sum = 0;
  for (KernelUse const& use : uses) {
    int const kernels = use.product ? gemm_launches(gemm(*use.product), *use.product) : 1;
    sum += static_cast<std::uint64_t>(kernels) * static_cast<std::uint64_t>(use.count);
  }
  return sum;
}

std::vector<GemmUse> forward_gemms(GptConfig const& config, MicroBatchShape shape, ModelStorage storage,
                                   GptOptions const& options) {
  return products_of(evaluation_kernels(config, shape, options, storage), {Pass::forward, Pass::loss});
}

std::vector<GemmUse> backward_gemms(GptConfig const& config, MicroBatchShape shape, Write mode, ModelStorage storage,
                                    GptOptions const& options) {
  return products_of(training_kernels(config, shape, options, mode, storage), {Pass::backward});
}

std::set<GemmShape> gemm_shapes(GptConfig const& config, MicroBatchShape shape, ModelStorage storage,
                                GptOptions const& options) {
  std::set<GemmShape> shapes;
  for (auto const& uses : {forward_gemms(config, shape, storage, options),
                           backward_gemms(config, shape, Write::overwrite, storage, options),
                           backward_gemms(config, shape, Write::add, storage, options)})
    for (GemmUse const& use : uses) shapes.insert(use.shape);
  return shapes;
}

ModelFlops evaluation_flops(GptConfig const& config, MicroBatchShape shape, GptOptions const& options) {
  return flops_of(evaluation_kernels(config, shape, options));
}

ModelFlops training_flops(GptConfig const& config, MicroBatchShape shape, GptOptions const& options) {
  return flops_of(training_kernels(config, shape, options));
}

std::uint64_t evaluation_launches(GptConfig const& config, MicroBatchShape shape, GemmChoice const& gemm,
                                  ModelStorage storage) {
  return launches_of(evaluation_kernels(config, shape, {}, storage), gemm);
}

std::uint64_t training_launches(GptConfig const& config, MicroBatchShape shape, GptOptions const& options, Write mode,
                                GemmChoice const& gemm, ModelStorage storage) {
  return launches_of(training_kernels(config, shape, options, mode, storage), gemm);
}

std::uint64_t gemm_scratch_bytes(GptConfig const& config, MicroBatchShape shape, GemmChoice const& gemm,
                                 ModelStorage storage, GptOptions const& options) {
  std::uint64_t most = 0;
  for (GemmShape const& product : gemm_shapes(config, shape, storage, options))
    most = std::max(most, gemm_scratch_bytes(gemm(product), product));
  return most;
}

} // namespace trainstone
