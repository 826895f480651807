#pragma once

// The kernels of src/kernels as one writes them first: a parallel_for over rows or elements of Views, without tiles,
// vector loops of our own or pointers taken out of the Views. perf_kernels compares the real ones with them, so that
// what their tuning gains is known. Each takes what the kernel of the same name in src/kernels takes and computes the
// same, up to the order of its sums; it neither checks extents nor declares work. Of matrix products the provider
// `kokkos` plays this part.

#include "kernels/dropout.hpp"
#include "kernels/embedding.hpp"
#include "kernels/optimizer.hpp"

namespace trainstone::plain {

template <class T>
void embedding_forward(ExecutionSpace const& exec, Vector<std::int32_t const> tokens, Matrix<T const> wte,
                       Matrix<T const> wpe, Index sequence, Matrix<T> out);
template <class T>
void embedding_backward(ExecutionSpace const& exec, TokenBuckets const& buckets, Matrix<T const> d_out, Index sequence,
                        Matrix<T> d_wte, Matrix<T> d_wpe);

template <class T>
void layernorm_forward(ExecutionSpace const& exec, Matrix<T const> x, Vector<T const> gamma, Vector<T const> beta,
                       Matrix<T> y, Vector<float> mean, Vector<float> rstd);
template <class T>
void residual_layernorm_forward(ExecutionSpace const& exec, Matrix<T const> x, Matrix<T const> branch,
                                Vector<T const> branch_bias, Vector<T const> gamma, Vector<T const> beta, Matrix<T> sum,
                                Matrix<T> y, Vector<float> mean, Vector<float> rstd);
/// Adds to d_x, overwrites d_gamma and d_beta.
template <class T>
void layernorm_backward(ExecutionSpace const& exec, Matrix<T const> d_y, Matrix<T const> x, Vector<T const> gamma,
                        Vector<float const> mean, Vector<float const> rstd, Matrix<T> d_x, Vector<T> d_gamma,
                        Vector<T> d_beta);

template <class T>
void residual_forward(ExecutionSpace const& exec, Matrix<T const> x, Matrix<T const> branch,
                      Vector<T const> branch_bias, Matrix<T> sum);
template <class T>
void add_bias(ExecutionSpace const& exec, Vector<T const> bias, Matrix<T> x);
template <class T>
void bias_gelu_forward(ExecutionSpace const& exec, Vector<T const> bias, Matrix<T> x, Matrix<T> y);
template <class T>
void gelu_backward(ExecutionSpace const& exec, Matrix<T const> x, Matrix<T> d_y_in_d_x_out);
/// Overwrites d_bias.
template <class T>
void bias_backward(ExecutionSpace const& exec, Matrix<T const> d_y, Vector<T> d_bias);

/// Masks are not kept.
template <class T>
void dropout_forward(ExecutionSpace const& exec, Dropout const& dropout, Index sequence, Vector<T const> bias,
                     Matrix<T> x);
template <class T>
void dropout_backward(ExecutionSpace const& exec, Dropout const& dropout, Index sequence, Matrix<T const> d_y,
                      Matrix<T> d_x);

template <class T>
void attention_forward(ExecutionSpace const& exec, Matrix<T const> qkv, Index heads, Tensor4<T> probabilities,
                       Matrix<T> out);
template <class T>
void attention_backward(ExecutionSpace const& exec, Matrix<T const> qkv, Tensor4<T const> probabilities,
                        Matrix<T const> d_out, Matrix<T> d_qkv);
template <class T>
void flash_attention_forward(ExecutionSpace const& exec, Matrix<T const> qkv, Index batch, Index heads,
                             Vector<float> log_sum_exp, Matrix<T> out);
template <class T>
void flash_attention_backward(ExecutionSpace const& exec, Matrix<T const> qkv, Index batch, Index heads,
                              Vector<float const> log_sum_exp, Matrix<T const> d_out, Matrix<T> d_qkv);

template <class T>
void cross_entropy_forward(ExecutionSpace const& exec, Matrix<T const> logits, Vector<std::int32_t const> targets,
                           Index vocab, Vector<float> losses);
template <class T>
void cross_entropy_backward_fused(ExecutionSpace const& exec, Matrix<T> logits, Vector<std::int32_t const> targets,
                                  Index vocab, float scale, Vector<float> losses);

template <class T>
void adamw_update(ExecutionSpace const& exec, Vector<T const> gradient, Vector<float> master, Vector<float> m,
                  Vector<float> v, Vector<T> parameter, AdamStep const& step);
template <class T>
void adam_update(ExecutionSpace const& exec, Vector<T const> gradient, Vector<float> master, Vector<float> m,
                 Vector<float> v, Vector<T> parameter, AdamStep const& step);
/// With momentum.
template <class T>
void sgd_update(ExecutionSpace const& exec, Vector<T const> gradient, Vector<float> master, Vector<float> velocity,
                Vector<T> parameter, SgdStep const& step);

/// result = the sum of squares: squared_block_sums and tree_sum in one.
template <class T>
void squared_norm(ExecutionSpace const& exec, Vector<T const> x, Vector<double> result);
void sum(ExecutionSpace const& exec, Vector<float const> x, Vector<double> result);
template <class From, class To>
void cast(ExecutionSpace const& exec, Vector<From const> from, Vector<To> to);
template <class T>
void round_to(ExecutionSpace const& exec, Vector<float> values);
/// Adds.
template <class T>
void accumulate(ExecutionSpace const& exec, Vector<T const> from, Vector<T> to);

} // namespace trainstone::plain
