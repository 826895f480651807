// The kernels of attention by products of a warpgroup. Compiled as CUDA.

#include "kernels/cuda/wgmma_attention.hpp"

#include "kernels/cuda/attention_launch.hpp"

namespace trainstone {

namespace {

constexpr Cuda::KernelLabels labels{.forward = "trainstone::wgmma_attention::forward",
                                    .backward_queries = "trainstone::wgmma_attention::backward_queries",
                                    .backward_keys = "trainstone::wgmma_attention::backward_keys"};

} // namespace

std::string wgmma_device_problem() {
  int device = 0;
  cudaDeviceProp properties;
  if (cudaGetDevice(&device) != cudaSuccess || cudaGetDeviceProperties(&properties, device) != cudaSuccess) {
    static_cast<void>(cudaGetLastError()); // it is no failure of what comes next
    return "";
  }
  return wgmma_device_problem(properties.name, properties.major, properties.minor);
}

template <class T>
void wgmma_attention_forward(ExecutionSpace const& exec, Matrix<T const> qkv, Index batch, Index heads,
                             Dropout const& dropout, Vector<float> log_sum_exp, Matrix<T> out) {
  Cuda::launch_forward<Cuda::WarpgroupKernels, Cuda::DeviceWarpgroupLane>(exec, labels, qkv, batch, heads, dropout,
                                                                          log_sum_exp, out);
}

template <class T>
void wgmma_attention_backward(ExecutionSpace const& exec, Matrix<T const> qkv, Index batch, Index heads,
                              Dropout const& dropout, Vector<float const> log_sum_exp, Matrix<T const> out,
                              Matrix<T const> d_out, Vector<float> sums, Matrix<T> d_qkv) {
  Cuda::launch_backward<Cuda::WarpgroupKernels, Cuda::DeviceWarpgroupLane>(exec, labels, qkv, batch, heads, dropout,
                                                                           log_sum_exp, out, d_out, sums, d_qkv);
}

#define TRAINSTONE_INSTANTIATE(T)                                                                                      \
  template void wgmma_attention_forward<T>(ExecutionSpace const&, Matrix<T const>, Index, Index, Dropout const&,       \
                                           Vector<float>, Matrix<T>);                                                  \
  template void wgmma_attention_backward<T>(ExecutionSpace const&, Matrix<T const>, Index, Index, Dropout const&,      \
                                            Vector<float const>, Matrix<T const>, Matrix<T const>, Vector<float>,      \
                                            Matrix<T>);
TRAINSTONE_INSTANTIATE(bf16)
TRAINSTONE_INSTANTIATE(fp16)

} // namespace trainstone
