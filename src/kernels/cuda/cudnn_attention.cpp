// Calls cuDNN's graphs of attention on the stream of the execution space's instance. Compiled as CUDA.

#include "kernels/cuda/cudnn_attention.hpp"

#include "core/launch.hpp"
#include "core/stored.hpp"
#include "kernels/common/attention_shape.hpp"
#include "kernels/common/shapes.hpp"
#include "kernels/cuda/cudnn_graphs.hpp"

#include <optional>

namespace trainstone {

namespace {

static_assert(std::is_same_v<ExecutionSpace, Kokkos::Cuda>, "cuDNN computes on CUDA devices");

/// Of this process. Made by the first call, and ended with Kokkos, while the device is still there.
Cuda::CudnnGraphs& graphs() {
  static std::optional<Cuda::CudnnGraphs> all;
  static bool const made = [] {
    all.emplace();
    Kokkos::push_finalize_hook([] { all.reset(); });
    return true;
  }();
  TRAINSTONE_REQUIRE(made && all, "attention by cuDNN after the end of Kokkos");
  return *all;
}

template <class T>
Cuda::CudnnCall call_of(Impl::AttentionShape const& shape, Dropout const& dropout) {
  std::string const problem =
      cudnn_attention_problem(storage_of<T>(), shape.sequence, shape.head_size, dropout.is_on());
  TRAINSTONE_REQUIRE(problem.empty(), "{}", problem);
  return {shape.batch, shape.sequence, shape.heads, shape.head_size, storage_of<T>()};
}

/// cuDNN's interface has no pointers to const.
template <class View>
void* memory_of(View const& view) {
  return const_cast<std::remove_const_t<typename View::value_type>*>(view.data());
}

std::uint64_t bytes_of(Vector<float> const& scratch) { return scratch.size() * sizeof(float); }

} // namespace

template <class T>
void cudnn_attention_forward(ExecutionSpace const& exec, Matrix<T const> qkv, Index batch, Index heads,
                             Dropout const& dropout, Vector<float> scratch, Vector<float> log_sum_exp, Matrix<T> out) {
  Impl::AttentionShape const shape =
      Impl::flash_attention_shape("cudnn_attention_forward", qkv, batch, heads, log_sum_exp, out);
  Cuda::CudnnCall const call = call_of<T>(shape, dropout);
  Cuda::CudnnGraph const* const graph = out.size() > 0 ? &graphs().forward(call, bytes_of(scratch)) : nullptr;
  Cuda::CudnnMemory const memory{memory_of(qkv), memory_of(out), memory_of(log_sum_exp),
                                 nullptr,        nullptr,        memory_of(scratch)};
  launch_external({.label = "trainstone::cudnn_attention::forward[cuDNN]",
                   .phase = Phase::attention,
                   .flops = cudnn_attention_flops(batch, shape.sequence, heads, shape.head_size).forward,
                   .bytes = 4 * out.size() * sizeof(T) + log_sum_exp.size() * sizeof(float)},
                  exec, [&] {
                    if (graph != nullptr) graphs().run(*graph, memory, exec.cuda_stream());
                  });
}

template <class T>
void cudnn_attention_backward(ExecutionSpace const& exec, Matrix<T const> qkv, Index batch, Index heads,
                              Dropout const& dropout, Vector<float const> log_sum_exp, Matrix<T const> out,
                              Matrix<T const> d_out, Vector<float> scratch, Matrix<T> d_qkv) {
  Impl::AttentionShape const shape =
      Impl::flash_attention_shape("cudnn_attention_backward", qkv, batch, heads, log_sum_exp, out);
  Index const rows = batch * shape.sequence, channels = shape.channels();
  Impl::require_shape("cudnn_attention_backward: d_out", d_out, {rows, channels});
  Impl::require_shape("cudnn_attention_backward: d_qkv", d_qkv, {rows, 3 * channels});
  Cuda::CudnnCall const call = call_of<T>(shape, dropout);
  Cuda::CudnnGraph const* const graph = out.size() > 0 ? &graphs().backward(call, bytes_of(scratch)) : nullptr;
  Cuda::CudnnMemory const memory{memory_of(qkv),   memory_of(out),   memory_of(log_sum_exp),
                                 memory_of(d_out), memory_of(d_qkv), memory_of(scratch)};
  launch_external({.label = "trainstone::cudnn_attention::backward[cuDNN]",
                   .phase = Phase::attention,
                   .flops = cudnn_attention_flops(batch, shape.sequence, heads, shape.head_size).backward,
                   .bytes = 8 * out.size() * sizeof(T) + log_sum_exp.size() * sizeof(float)},
                  exec, [&] {
                    if (graph != nullptr) graphs().run(*graph, memory, exec.cuda_stream());
                  });
}

#define TRAINSTONE_INSTANTIATE(T)                                                                                      \
  template void cudnn_attention_forward<T>(ExecutionSpace const&, Matrix<T const>, Index, Index, Dropout const&,       \
                                           Vector<float>, Vector<float>, Matrix<T>);                                   \
  template void cudnn_attention_backward<T>(ExecutionSpace const&, Matrix<T const>, Index, Index, Dropout const&,      \
                                            Vector<float const>, Matrix<T const>, Matrix<T const>, Vector<float>,      \
                                            Matrix<T>);
TRAINSTONE_INSTANTIATE(bf16)
TRAINSTONE_INSTANTIATE(fp16)

} // namespace trainstone
