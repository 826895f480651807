// Starts the kernels of attention on tensor cores, on the stream of the execution space's instance. Compiled as CUDA.

#include "kernels/cuda/tensor_attention.hpp"

#include "core/launch.hpp"
#include "core/stored.hpp"
#include "kernels/common/attention_shape.hpp"
#include "kernels/common/row.hpp"
#include "kernels/common/shapes.hpp"
#include "kernels/cuda/attention_work.hpp"
#include "kernels/cuda/key_mask.hpp"

namespace trainstone {

namespace {

static_assert(std::is_same_v<ExecutionSpace, Kokkos::Cuda>, "these kernels run on CUDA devices");

template <class Body>
__global__ void __launch_bounds__(Body::Tiles::threads, Body::Tiles::blocks)
    run_block(typename Body::Arguments const arguments) {
  extern __shared__ std::byte shared[];
  Cuda::DeviceLane lane;
  Body(arguments, lane, shared).run();
}

void check(cudaError_t status, char const* label) {
  if (status != cudaSuccess) throw Error(fmt::format("{} failed: {}", label, cudaGetErrorString(status)));
}

template <class Body>
void start(ExecutionSpace const& exec, Kernel const& kernel, Index blocks, typename Body::Arguments const& arguments) {
  if (blocks == 0) return;
  auto* const function = run_block<Body>;
  check(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, Body::shared_bytes), kernel.label);
  function<<<static_cast<unsigned>(blocks), Body::Tiles::threads, Body::shared_bytes, exec.cuda_stream()>>>(arguments);
  check(cudaGetLastError(), kernel.label);
}

template <class T>
using Element = std::conditional_t<std::is_same_v<T, bf16>, Cuda::Bf16, Cuda::Fp16>;

/// body(head size, mask): with dropout or without.
template <class Body>
void with_mask(Impl::AttentionShape const& shape, Dropout const& dropout, Body const& body) {
  Cuda::with_head_size(shape.head_size, [&](auto head_size) {
    if (!dropout.is_on()) return body(head_size, Cuda::KeepsAll());
    Impl::DropoutRows const rows(dropout, shape.sequence, shape.heads);
    body(head_size, Cuda::KeyMask{rows, rows.scale});
  });
}

Cuda::AttentionSizes sizes_of(Impl::AttentionShape const& shape) {
  return {static_cast<int>(shape.batch), static_cast<int>(shape.sequence), static_cast<int>(shape.heads),
          static_cast<int>(shape.head_size), shape.scale()};
}

template <class View>
auto bytes_of(View const& view) {
  using Byte = std::conditional_t<std::is_const_v<typename View::value_type>, std::byte const, std::byte>;
  return reinterpret_cast<Byte*>(view.data());
}

} // namespace

template <class T>
void tensor_attention_forward(ExecutionSpace const& exec, Matrix<T const> qkv, Index batch, Index heads,
                              Dropout const& dropout, Vector<float> log_sum_exp, Matrix<T> out) {
  Impl::AttentionShape const shape =
      Impl::flash_attention_shape("tensor_attention_forward", qkv, batch, heads, log_sum_exp, out);
  with_mask(shape, dropout, [&]<int head_size, class Mask>(std::integral_constant<int, head_size>, Mask const& mask) {
    using Body = Cuda::AttentionForward<Element<T>, head_size, Mask, Cuda::DeviceLane>;
    std::int64_t const flops = Cuda::attention_forward_flops<head_size, Mask::drops>(shape.sequence);
    Kernel const kernel{.label = "trainstone::tensor_attention::forward",
                        .phase = Phase::attention,
                        .flops = static_cast<std::uint64_t>(batch * heads * flops),
                        .bytes = 4 * out.size() * sizeof(T) + log_sum_exp.size() * sizeof(float)};
    launch_external(kernel, exec, [&] {
      start<Body>(exec, kernel, batch * heads * Impl::divide_up(shape.sequence, Body::Tiles::queries),
                  {sizes_of(shape), bytes_of(qkv), bytes_of(out), log_sum_exp.data(), mask});
    });
  });
}

template <class T>
void tensor_attention_backward(ExecutionSpace const& exec, Matrix<T const> qkv, Index batch, Index heads,
                               Dropout const& dropout, Vector<float const> log_sum_exp, Matrix<T const> out,
                               Matrix<T const> d_out, Vector<float> sums, Matrix<T> d_qkv) {
  Impl::AttentionShape const shape =
      Impl::flash_attention_shape("tensor_attention_backward", qkv, batch, heads, log_sum_exp, out);
  Index const rows = batch * shape.sequence, channels = shape.channels();
  Impl::require_shape("tensor_attention_backward: d_out", d_out, {rows, channels});
  Impl::require_shape("tensor_attention_backward: sums", sums, {rows * heads});
  Impl::require_shape("tensor_attention_backward: d_qkv", d_qkv, {rows, 3 * channels});
  with_mask(shape, dropout, [&]<int head_size, class Mask>(std::integral_constant<int, head_size>, Mask const& mask) {
    using Queries = Cuda::AttentionQueries<Element<T>, head_size, Mask, Cuda::DeviceLane>;
    using Keys = Cuda::AttentionKeys<Element<T>, head_size, Mask, Cuda::DeviceLane>;
    Cuda::BackwardArguments<Mask> const arguments{sizes_of(shape),    bytes_of(qkv), bytes_of(out),   bytes_of(d_out),
                                                  log_sum_exp.data(), sums.data(),   bytes_of(d_qkv), mask};
    std::int64_t const all = batch * heads;
    auto const kernel = [&](char const* label, std::int64_t flops, std::uint64_t moved, std::uint64_t numbers) {
      return Kernel{.label = label,
                    .phase = Phase::attention,
                    .flops = static_cast<std::uint64_t>(all * flops),
                    .bytes = moved * out.size() * sizeof(T) + numbers * log_sum_exp.size() * sizeof(float)};
    };
    Kernel const of_queries = kernel("trainstone::tensor_attention::backward_queries",
                                     Cuda::backward_queries_flops<head_size>(shape.sequence), 6, 2);
    Kernel const of_keys = kernel("trainstone::tensor_attention::backward_keys",
                                  Cuda::backward_keys_flops<head_size, Mask::drops>(shape.sequence), 6, 2);
    launch_external(of_queries, exec, [&] {
      start<Queries>(exec, of_queries, all * Impl::divide_up(shape.sequence, Queries::Tiles::queries), arguments);
    });
    launch_external(of_keys, exec, [&] {
      start<Keys>(exec, of_keys, all * Impl::divide_up(shape.sequence, Keys::Tiles::keys), arguments);
    });
  });
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
