// What attention on tensor cores supports and costs: of every build, so that plans of CUDA builds can be made on hosts.

#include "kernels/cuda/attention_work.hpp"
#include "kernels/cuda/tensor_attention.hpp"

namespace trainstone {

std::string tensor_attention_problem(Storage storage, Index head_size) {
  if (storage == Storage::fp32) return "attention on tensor cores has values of 16 bits, not fp32";
  if (head_size == 64 || head_size == 80 || head_size == 96 || head_size == 128) return "";
  return fmt::format("attention on tensor cores has heads of 64, 80, 96 or 128 channels, not of {}", head_size);
}

TensorAttentionFlops tensor_attention_flops(Index batch, Index sequence, Index heads, Index head_size, bool drops) {
  auto const of_all = [&](std::int64_t of_head) { return static_cast<std::uint64_t>(batch * heads * of_head); };
  return Cuda::with_head_size(head_size, [&]<int size>(std::integral_constant<int, size>) -> TensorAttentionFlops {
    return {of_all(drops ? Cuda::attention_forward_flops<size, true>(sequence)
                         : Cuda::attention_forward_flops<size, false>(sequence)),
            of_all(Cuda::backward_queries_flops<size>(sequence)),
            of_all(drops ? Cuda::backward_keys_flops<size, true>(sequence)
                         : Cuda::backward_keys_flops<size, false>(sequence))};
  });
}

} // namespace trainstone
