// What attention on tensor cores supports and costs: of every build, so that plans of CUDA builds can be made on hosts.

#include "kernels/cuda/attention_work.hpp"
#include "kernels/cuda/tensor_attention.hpp"

namespace trainstone {

std::string tensor_attention_problem(Storage storage, Index head_size) {
  if (storage == Storage::fp32) return "attention on tensor cores has values of 16 bits, not fp32";
  if (head_size == 64 || head_size == 80 || head_size == 96 || head_size == 128) return "";
  return fmt::format("attention on tensor cores has heads of 64, 80, 96 or 128 channels, not of {}", head_size);
}

TensorAttentionFlops tensor_attention_flops(TensorProducts products, Index batch, Index sequence, Index heads,
                                            Index head_size, bool drops) {
  return products == TensorProducts::of_warps
             ? Cuda::flops_of<Cuda::WarpKernels>(batch, sequence, heads, head_size, drops)
             : Cuda::flops_of<Cuda::WarpgroupKernels>(batch, sequence, heads, head_size, drops);
}

std::string wgmma_device_problem(std::string_view device, int major, int minor) {
  if (major == 9 && minor == 0) return "";
  return fmt::format("products of warpgroups need a device of compute capability 9.0, and this one is of {}.{}: {}",
                     major, minor, device);
}

} // namespace trainstone
