#pragma once

// Starts a set of kernels of attention on tensor cores (kernel_sets.hpp) on the stream of the execution space's
// instance: what tensor_attention.hpp promises. Compiled as CUDA, by a file for each set.

#include "core/cuda_check.hpp"
#include "core/launch.hpp"
#include "core/stored.hpp"
#include "kernels/common/attention_shape.hpp"
#include "kernels/common/row.hpp"
#include "kernels/common/shapes.hpp"
#include "kernels/cuda/attention_work.hpp"
#include "kernels/cuda/key_mask.hpp"
#include "kernels/cuda/tensor_attention.hpp"

#if defined(__CUDACC__)

namespace trainstone::Cuda {

static_assert(std::is_same_v<ExecutionSpace, Kokkos::Cuda>, "these kernels run on CUDA devices");

template <class Body>
__global__ void __launch_bounds__(Body::Tiles::threads, Body::Tiles::blocks)
    run_block(typename Body::Arguments const arguments) {
  extern __shared__ __align__(1024) std::byte shared[]; // panels of a SwizzledTile begin at multiples
  typename Body::LaneOfBlock lane;
  Body(arguments, lane, shared).run();
}

template <class Body>
void start(ExecutionSpace const& exec, Kernel const& kernel, Index blocks, typename Body::Arguments const& arguments) {
  if (blocks == 0) return;
  auto* const function = run_block<Body>;
  check_cuda(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, Body::shared_bytes),
             kernel.label);
  function<<<static_cast<unsigned>(blocks), Body::Tiles::threads, Body::shared_bytes, exec.cuda_stream()>>>(arguments);
  check_cuda(cudaGetLastError(), kernel.label);
}

template <class T>
using Element = std::conditional_t<std::is_same_v<T, bf16>, Bf16, Fp16>;

/// body(head size, mask): with dropout or without.
template <class Body>
void with_mask(trainstone::Impl::AttentionShape const& shape, Dropout const& dropout, Body const& body) {
  with_head_size(shape.head_size, [&](auto head_size) {
    if (!dropout.is_on()) return body(head_size, KeepsAll());
    trainstone::Impl::DropoutRows const rows(dropout, shape.sequence, shape.heads);
    body(head_size, KeyMask{rows, rows.scale});
  });
}

inline AttentionSizes sizes_of(trainstone::Impl::AttentionShape const& shape) {
  return {static_cast<int>(shape.batch), static_cast<int>(shape.sequence), static_cast<int>(shape.heads),
          static_cast<int>(shape.head_size), shape.scale()};
}

template <class View>
auto bytes_of(View const& view) {
  using Byte = std::conditional_t<std::is_const_v<typename View::value_type>, std::byte const, std::byte>;
  return reinterpret_cast<Byte*>(view.data());
}

/// What computes with these products: the set of kernels, its lanes, and its labels.
template <TensorProducts products>
struct Launched;

template <>
struct Launched<TensorProducts::of_warps> {
  using Set = WarpKernels;
  using Lane = DeviceLane;
  static constexpr char const *forward = "trainstone::tensor_attention::forward",
                              *queries = "trainstone::tensor_attention::backward_queries",
                              *keys = "trainstone::tensor_attention::backward_keys";
};

template <>
struct Launched<TensorProducts::of_warpgroups> {
  using Set = WarpgroupKernels;
  using Lane = DeviceWarpgroupLane;
  static constexpr char const *forward = "trainstone::wgmma_attention::forward",
                              *queries = "trainstone::wgmma_attention::backward_queries",
                              *keys = "trainstone::wgmma_attention::backward_keys";
};

} // namespace trainstone::Cuda

namespace trainstone {

template <TensorProducts products, class T>
void tensor_attention_forward(ExecutionSpace const& exec, Matrix<T const> qkv, Index batch, Index heads,
                              Dropout const& dropout, Vector<float> log_sum_exp, Matrix<T> out) {
  using By = Cuda::Launched<products>;
  Impl::AttentionShape const shape = Impl::flash_attention_shape(By::forward, qkv, batch, heads, log_sum_exp, out);
  Cuda::with_mask(
      shape, dropout, [&]<int head_size, class Mask>(std::integral_constant<int, head_size>, Mask const& mask) {
        using Body =
            typename Cuda::KernelsOf<typename By::Set, Cuda::Element<T>, head_size, Mask, typename By::Lane>::Forward;
        std::int64_t const flops =
            Cuda::attention_forward_flops<typename By::Set, head_size, Mask::drops>(shape.sequence);
        Kernel const kernel{.label = By::forward,
                            .phase = Phase::attention,
                            .flops = static_cast<std::uint64_t>(batch * heads * flops),
                            .bytes = 4 * out.size() * sizeof(T) + log_sum_exp.size() * sizeof(float)};
        Index const tiles = Impl::divide_up(shape.sequence, Body::Tiles::queries);
        launch_external(kernel, exec, [&] {
          Cuda::start<Body>(
              exec, kernel, batch * heads * tiles,
              {Cuda::sizes_of(shape), Cuda::bytes_of(qkv), Cuda::bytes_of(out), log_sum_exp.data(), mask});
        });
      });
}

template <TensorProducts products, class T>
void tensor_attention_backward(ExecutionSpace const& exec, Matrix<T const> qkv, Index batch, Index heads,
                               Dropout const& dropout, Vector<float const> log_sum_exp, Matrix<T const> out,
                               Matrix<T const> d_out, Vector<float> sums, Matrix<T> d_qkv) {
  using By = Cuda::Launched<products>;
  using Set = typename By::Set;
  Impl::AttentionShape const shape = Impl::flash_attention_shape(By::queries, qkv, batch, heads, log_sum_exp, out);
  Index const rows = batch * shape.sequence, channels = shape.channels();
  Impl::require_shape("attention on tensor cores, backward: d_out", d_out, {rows, channels});
  Impl::require_shape("attention on tensor cores, backward: sums", sums, {rows * heads});
  Impl::require_shape("attention on tensor cores, backward: d_qkv", d_qkv, {rows, 3 * channels});
  Cuda::with_mask(
      shape, dropout, [&]<int head_size, class Mask>(std::integral_constant<int, head_size>, Mask const& mask) {
        using Kernels = Cuda::KernelsOf<Set, Cuda::Element<T>, head_size, Mask, typename By::Lane>;
        using Queries = typename Kernels::Queries;
        using Keys = typename Kernels::Keys;
        using Cuda::bytes_of;
        Cuda::BackwardArguments<Mask> const arguments{
            Cuda::sizes_of(shape), bytes_of(qkv), bytes_of(out),   bytes_of(d_out),
            log_sum_exp.data(),    sums.data(),   bytes_of(d_qkv), mask};
        std::int64_t const all = batch * heads;
        auto const kernel = [&](char const* label, std::int64_t flops) {
          return Kernel{.label = label,
                        .phase = Phase::attention,
                        .flops = static_cast<std::uint64_t>(all * flops),
                        .bytes = 6 * out.size() * sizeof(T) + 2 * log_sum_exp.size() * sizeof(float)};
        };
        Kernel const of_queries = kernel(By::queries, Cuda::backward_queries_flops<Set, head_size>(shape.sequence));
        Kernel const of_keys = kernel(By::keys, Cuda::backward_keys_flops<Set, head_size, Mask::drops>(shape.sequence));
        launch_external(of_queries, exec, [&] {
          Cuda::start<Queries>(exec, of_queries, all * Impl::divide_up(shape.sequence, Queries::Tiles::queries),
                               arguments);
        });
        launch_external(of_keys, exec, [&] {
          Cuda::start<Keys>(exec, of_keys, all * Impl::divide_up(shape.sequence, Keys::Tiles::keys), arguments);
        });
      });
}

#define TRAINSTONE_INSTANTIATE_ATTENTION(products, T)                                                                  \
  template void tensor_attention_forward<products, T>(ExecutionSpace const&, Matrix<T const>, Index, Index,            \
                                                      Dropout const&, Vector<float>, Matrix<T>);                       \
  template void tensor_attention_backward<products, T>(ExecutionSpace const&, Matrix<T const>, Index, Index,           \
                                                       Dropout const&, Vector<float const>, Matrix<T const>,           \
                                                       Matrix<T const>, Vector<float>, Matrix<T>);

} // namespace trainstone

#endif
