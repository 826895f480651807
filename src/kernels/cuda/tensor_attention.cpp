// The kernels of attention by products of a warp. Compiled as CUDA.

#include "kernels/cuda/attention_launch.hpp"

namespace trainstone {

TRAINSTONE_INSTANTIATE_ATTENTION(TensorProducts::of_warps, bf16)
TRAINSTONE_INSTANTIATE_ATTENTION(TensorProducts::of_warps, fp16)

} // namespace trainstone
