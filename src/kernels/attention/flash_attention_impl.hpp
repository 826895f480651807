#pragma once

// Bodies of flash_attention.hpp; included by flash_attention.cpp alone.

#include "kernels/attention/flash_attention.hpp"

#include "core/launch.hpp"
#include "kernels/attention/flash_backward_impl.hpp"
#include "kernels/attention/flash_forward_impl.hpp"
#include "kernels/common/shapes.hpp"

namespace trainstone {

namespace Impl {

/// Five products over the pairs of the tiles that run; by tiles two of them are computed twice.
inline std::uint64_t flash_backward_flops(Index batch, Index sequence, Index heads, Index head_size, bool by_tiles) {
  return flash_attention_forward_flops(batch, sequence, heads, head_size) / 2 * (by_tiles ? 7 : 5);
}

} // namespace Impl

template <class T>
void flash_attention_forward(ExecutionSpace const& exec, Matrix<T const> qkv, Index batch, Index heads,
                             Dropout const& dropout, Vector<float> log_sum_exp, Matrix<T> out) {
  Impl::AttentionShape const shape =
      Impl::flash_attention_shape("flash_attention_forward", qkv, batch, heads, log_sum_exp, out);
  Kernel const kernel{.label = "trainstone::flash_attention::forward",
                      .phase = Phase::attention,
                      .flops = flash_attention_forward_flops(batch, shape.sequence, heads, shape.head_size),
                      .bytes = 4 * out.size() * sizeof(T) + log_sum_exp.size() * sizeof(float)};
  Impl::FlashForward<T> const body{shape, Impl::KeyDropout(dropout, shape), qkv, log_sum_exp, out};
  Index const tiles = batch * heads * Impl::divide_up(shape.sequence, Impl::Tiles::queries);
  launch_for(kernel, body.needs().policy(exec, tiles), body);
}

template <class T>
void Impl::flash_attention_backward(ExecutionSpace const& exec, Matrix<T const> qkv, Index batch, Index heads,
                                    Dropout const& dropout, Vector<float const> log_sum_exp, Matrix<T const> out,
                                    Matrix<T const> d_out, Matrix<T> d_qkv, bool by_tiles) {
  Impl::AttentionShape const shape =
      Impl::flash_attention_shape("flash_attention_backward", qkv, batch, heads, log_sum_exp, out);
  Index const rows = batch * shape.sequence, channels = shape.channels();
  Impl::require_shape("flash_attention_backward: d_out", d_out, {rows, channels});
  Impl::require_shape("flash_attention_backward: d_qkv", d_qkv, {rows, 3 * channels});
  Kernel const kernel{.label = "trainstone::flash_attention::backward",
                      .phase = Phase::attention,
                      .flops = flash_backward_flops(batch, shape.sequence, heads, shape.head_size, by_tiles),
                      .bytes = 8 * out.size() * sizeof(T) + log_sum_exp.size() * sizeof(float)};
  Impl::FlashBackward<T> const body{shape, by_tiles, Impl::KeyDropout(dropout, shape), qkv, log_sum_exp, out,
                                    d_out, d_qkv};
  launch_for(kernel, body.needs().policy(exec, body.teams()), body);
}

template <class T>
void flash_attention_backward(ExecutionSpace const& exec, Matrix<T const> qkv, Index batch, Index heads,
                              Dropout const& dropout, Vector<float const> log_sum_exp, Matrix<T const> out,
                              Matrix<T const> d_out, Matrix<T> d_qkv) {
  Impl::flash_attention_backward<T>(exec, qkv, batch, heads, dropout, log_sum_exp, out, d_out, d_qkv,
                                    !host_reaches_memory);
}

} // namespace trainstone
