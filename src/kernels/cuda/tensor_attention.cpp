// The kernels of attention by products of a warp. Compiled as CUDA.

#include "kernels/cuda/tensor_attention.hpp"

#include "kernels/cuda/attention_launch.hpp"

namespace trainstone {

namespace {

constexpr Cuda::KernelLabels labels{.forward = "trainstone::tensor_attention::forward",
                                    .backward_queries = "trainstone::tensor_attention::backward_queries",
                                    .backward_keys = "trainstone::tensor_attention::backward_keys"};

} // namespace

template <class T>
void tensor_attention_forward(ExecutionSpace const& exec, Matrix<T const> qkv, Index batch, Index heads,
                              Dropout const& dropout, Vector<float> log_sum_exp, Matrix<T> out) {
  Cuda::launch_forward<Cuda::WarpKernels, Cuda::DeviceLane>(exec, labels, qkv, batch, heads, dropout, log_sum_exp, out);
}

template <class T>
void tensor_attention_backward(ExecutionSpace const& exec, Matrix<T const> qkv, Index batch, Index heads,
                               Dropout const& dropout, Vector<float const> log_sum_exp, Matrix<T const> out,
                               Matrix<T const> d_out, Vector<float> sums, Matrix<T> d_qkv) {
  Cuda::launch_backward<Cuda::WarpKernels, Cuda::DeviceLane>(exec, labels, qkv, batch, heads, dropout, log_sum_exp, out,
                                                             d_out, sums, d_qkv);
}

#define TRAINSTONE_INSTANTIATE(T)                                                                                      \
  template void tensor_attention_forward<T>(ExecutionSpace const&, Matrix<T const>, Index, Index, Dropout const&,      \
                                            Vector<float>, Matrix<T>);                                                 \
  template void tensor_attention_backward<T>(ExecutionSpace const&, Matrix<T const>, Index, Index, Dropout const&,     \
                                             Vector<float const>, Matrix<T const>, Matrix<T const>, Vector<float>,     \
                                             Matrix<T>);
TRAINSTONE_INSTANTIATE(bf16)
TRAINSTONE_INSTANTIATE(fp16)

} // namespace trainstone
