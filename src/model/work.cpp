#include "model/work.hpp"

#include <algorithm>

namespace trainstone {

namespace {

std::uint64_t count_of(Index value) { return static_cast<std::uint64_t>(value); }

std::vector<GemmUse> products_of(std::vector<KernelUse> const& uses, std::set<Pass> const& passes) {
  std::vector<GemmUse> products;
  for (KernelUse const& use : uses)
    if (use.product && passes.contains(use.pass)) products.push_back({use.name, *use.product, use.count});
  return products;
}

/// The kernel of an epilogue that the provider does not compute.
KernelUse epilogue_kernel(KernelUse use) {
  GemmShape const& shape = *use.product;
  std::uint64_t const out = count_of(shape.m * shape.n), in = count_of(shape.k * shape.m);
  std::uint64_t const out_bytes = bytes_per_value(shape.output), in_bytes = bytes_per_value(shape.inputs);
  switch (shape.epilogue) {
  case EpilogueKind::none: break;
  case EpilogueKind::bias:
    use.name = "bias::forward";
    use.work = {Phase::other, out, (2 * out + count_of(shape.n)) * out_bytes};
    break;
  case EpilogueKind::bias_gelu:
    use.name = "bias_gelu::forward";
    use.work = {Phase::other, 10 * out, (3 * out + count_of(shape.n)) * out_bytes};
    break;
  case EpilogueKind::gelu_gradient:
    use.name = "gelu::backward";
    use.work = {Phase::other, 16 * out, 3 * out * out_bytes};
    break;
  case EpilogueKind::bias_gradient:
    use.name = "bias::backward";
    use.work = {Phase::other, in, in * in_bytes + (shape.mode == Write::add ? 2 : 1) * count_of(shape.m) * out_bytes};
    break;
  }
  use.product.reset();
  return use;
}

KernelUse conversion_kernel(KernelUse use, Index elements, Storage narrow) {
  use.name = "cast::convert";
  use.work = {Phase::other, 0, count_of(elements) * (bytes_per_value(narrow) + sizeof(float))};
  use.product.reset();
  return use;
}

} // namespace

std::vector<KernelUse> started_kernels(KernelUse const& use, GemmChoice const& gemm) {
  if (!use.product) return {use};
  GemmShape const& shape = *use.product;
  GemmShape alone = shape;
  alone.epilogue = EpilogueKind::none;
  GemmProvider const provider = gemm(shape).provider;
  int const kernels = gemm_launches(provider, alone);
  bool const apart = gemm_launches(provider, shape) > kernels, converts = kernels > 1;
  bool const begins = shape.epilogue == EpilogueKind::bias_gradient, widens = shape.output != Storage::fp32;
  std::vector<KernelUse> started;
  if (kernels == 0) return started;
  if (apart && begins) started.push_back(epilogue_kernel(use));
  if (converts) {
    started.push_back(conversion_kernel(use, shape.m * shape.k, shape.inputs));
    started.push_back(conversion_kernel(use, shape.k * shape.n, shape.inputs));
    if (widens && shape.mode == Write::add) started.push_back(conversion_kernel(use, shape.m * shape.n, shape.output));
    alone.inputs = alone.output = Storage::fp32;
  }
  started.push_back(use);
  started.back().work.bytes = alone.bytes();
  if (converts && widens) started.push_back(conversion_kernel(use, shape.m * shape.n, shape.output));
  if (apart && !begins) started.push_back(epilogue_kernel(use));
  return started;
}

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
    int const kernels = use.product ? gemm_launches(gemm(*use.product).provider, *use.product) : 1;
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
    most = std::max(most, gemm_scratch_bytes(gemm(product).provider, product));
  return most;
}

} // namespace trainstone
