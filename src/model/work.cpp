#include "model/work.hpp"

#include <algorithm>

namespace trainstone {

namespace {

std::vector<GemmUse> products_of(std::vector<KernelUse> const& uses, Pass pass) {
  std::vector<GemmUse> products;
  for (KernelUse const& use : uses)
    if (use.product && use.pass == pass) products.push_back({use.name, *use.product, use.count});
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

std::uint64_t launches_of(std::vector<KernelUse> const& uses, GemmChoice const& gemm) {
  std::uint64_t sum = 0;
  for (KernelUse const& use : uses) {
    int const kernels = use.product ? gemm_launches(gemm(*use.product), *use.product) : 1;
    sum += static_cast<std::uint64_t>(kernels) * static_cast<std::uint64_t>(use.count);
  }
  return sum;
}

std::vector<GemmUse> forward_gemms(GptConfig const& config, MicroBatchShape shape, ModelStorage storage) {
  return products_of(evaluation_kernels(config, shape, {}, storage), Pass::forward);
}

std::vector<GemmUse> backward_gemms(GptConfig const& config, MicroBatchShape shape, Write mode, ModelStorage storage) {
  return products_of(training_kernels(config, shape, {}, mode, storage), Pass::backward);
}

std::set<GemmShape> gemm_shapes(GptConfig const& config, MicroBatchShape shape, ModelStorage storage) {
  std::set<GemmShape> shapes;
  for (auto const& uses :
       {forward_gemms(config, shape, storage), backward_gemms(config, shape, Write::overwrite, storage),
        backward_gemms(config, shape, Write::add, storage)})
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
                                 ModelStorage storage) {
  std::uint64_t most = 0;
  for (GemmShape const& product : gemm_shapes(config, shape, storage))
    most = std::max(most, gemm_scratch_bytes(gemm(product), product));
  return most;
}

} // namespace trainstone
