// The kernels of attention by products of a warpgroup. Compiled as CUDA.

#include "kernels/cuda/attention_launch.hpp"

namespace trainstone {

std::string wgmma_device_problem() {
  int device = 0;
  cudaDeviceProp properties;
  if (cudaGetDevice(&device) != cudaSuccess || cudaGetDeviceProperties(&properties, device) != cudaSuccess) {
    static_cast<void>(cudaGetLastError()); // it is no failure of what comes next
    return "";
  }
  return wgmma_device_problem(properties.name, properties.major, properties.minor);
}

TRAINSTONE_INSTANTIATE_ATTENTION(TensorProducts::of_warpgroups, bf16)
TRAINSTONE_INSTANTIATE_ATTENTION(TensorProducts::of_warpgroups, fp16)

} // namespace trainstone
