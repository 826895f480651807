#pragma once

// The specification of every kernel: straight serial loops in fp64, forward and backward. Owns no memory and no state.
// Promises: what a kernel of the same name computes, in the same argument order without the execution space, to within
// fp64 rounding; the kernels' tests and the reference model of the tests compare with these. Not meant to be fast.
//
// Conventions. Row-major; shapes in parentheses; N rows = batch x sequence. Sizes that the spans' lengths give are not
// passed again; lengths that contradict each other throw Error. Outputs are overwritten, but
//   where the kernel of that name takes a Write, the reference ADDS: start from zeros to see what `overwrite` gives.
// Those outputs are marked (+=). Inputs and outputs do not overlap but where "in place" is said.

#include <cstdint>
#include <span>

namespace trainstone::reference {

using Index = std::int64_t; // as in core/views.hpp, without Kokkos
using Values = std::span<double const>;
using Output = std::span<double>;
using Tokens = std::span<std::int32_t const>;

/// The epsilon under the square root of every layer norm.
inline constexpr double layernorm_epsilon = 1e-5;

// ---- embedding ------------------------------------------------------------------------------------------------------

/// out[n] = wte[tokens[n]] + wpe[n % sequence].
/// tokens (N), wte (V, C), wpe (T_max, C), T_max >= sequence, out (N, C). Throws Error for a token outside the table.
void embedding_forward(Tokens tokens, Values wte, Values wpe, Index sequence, Output out);

/// d_wte[tokens[n]] += d_out[n]; d_wpe[n % sequence] += d_out[n].
/// d_out (N, C), d_wte (V, C) (+=), d_wpe (T_max, C) (+=).
void embedding_backward(Tokens tokens, Values d_out, Index sequence, Output d_wte, Output d_wpe);

// ---- layer norm, residual, bias, GELU -------------------------------------------------------------------------------

/// y = (x - mean) * rstd * gamma + beta per row; mean over C, rstd = 1 / sqrt(variance + epsilon), biased variance.
/// x (N, C), gamma, beta (C), y (N, C), mean, rstd (N). In place (y = x) is allowed.
void layernorm_forward(Values x, Values gamma, Values beta, Output y, Output mean, Output rstd);

/// sum = x + branch + branch_bias; y = layernorm(sum). Shapes as above; branch_bias (C).
void residual_layernorm_forward(Values x, Values branch, Values branch_bias, Values gamma, Values beta, Output sum,
                                Output y, Output mean, Output rstd);

/// d_y, x (N, C), gamma (C), mean, rstd (N); d_x (N, C) (+=), d_gamma, d_beta (C) (+=).
void layernorm_backward(Values d_y, Values x, Values gamma, Values mean, Values rstd, Output d_x, Output d_gamma,
                        Output d_beta);

/// sum = x + branch + branch_bias. x, branch, sum (N, C), branch_bias (C). In place (sum = x) is allowed.
void residual_forward(Values x, Values branch, Values branch_bias, Output sum);

/// x += bias per row, in place. bias (C), x (N, C).
void add_bias(Values bias, Output x);

/// The GELU in its tanh form: 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), and its derivative.
double gelu(double x);
double gelu_derivative(double x);

/// x += bias per row, in place (kept for backward); y = gelu(x). bias (C), x, y (N, C).
void bias_gelu_forward(Values bias, Output x, Output y);

/// d = d * gelu'(x), in place: holds d_y before and d_x after. x: with bias added, as bias_gelu_forward left it.
void gelu_backward(Values x, Output d_y_in_d_x_out);

/// d_bias[c] += sum over rows of d_y[n, c]. d_y (N, C), d_bias (C) (+=).
void bias_backward(Values d_y, Output d_bias);

// ---- dropout (reference_training.cpp) -------------------------------------------------------------------------------

struct DropoutSite {
  double rate;
  std::uint64_t seed, first_sample; ///< of row 0
  std::uint32_t site;
};

/// What dropout multiplies with: 0 where an element is dropped, 1 / (1 - rate) where it is kept. Row n is position
/// n mod sequence of sample first_sample + n / sequence. Element c is dropped if word c mod 4 of Philox4x32-10 is less
/// than rate 2^32, for the key seed and the counter (c / 4 + 2^18 head, position + 2^20 (sample / 2^32),
/// 5 + 2^8 site, sample mod 2^32). `head` is 0 but in attention, whose columns are keys. factors (N, columns).
void dropout_factors(DropoutSite const& site, Index sequence, Index head, Index columns, Output factors);

/// x *= factors, in place: dropout, and its gradient. Both (n).
void dropout(Values factors, Output x);

// ---- GEMM -----------------------------------------------------------------------------------------------------------

struct GemmShape {
  Index m, n, k;
  bool transpose_a = false;
  bool transpose_b = false;
};

/// C += op(A) op(B). op(A) is (m, k): a is (m, k), or (k, m) if transposed; op(B) is (k, n); c (m, n) (+=).
void gemm(GemmShape const& shape, Values a, Values b, Output c);

// ---- attention (reference_attention.cpp) ----------------------------------------------------------------------------

struct AttentionShape {
  Index batch, sequence, heads, head_size;
};

/// Causal self-attention with the probabilities materialised: softmax over u <= t of q[t].k[u] / sqrt(HS), times v.
/// qkv (B T, 3 C), a row being q(C) k(C) v(C), head h in columns h HS .. (h+1) HS of each; probabilities (B, NH, T, T),
/// zeros where u > t; out (B T, C). With dropout, factors (B, NH, T, T) multiply the probabilities before v does; what
/// is kept as probabilities is without them. Without: empty.
void attention_forward(AttentionShape const& shape, Values qkv, Output probabilities, Output out, Values factors = {});

/// d_qkv (B T, 3 C) from d_out (B T, C) and what forward left. Overwrites d_qkv.
void attention_backward(AttentionShape const& shape, Values qkv, Values probabilities, Values d_out, Output d_qkv,
                        Values factors = {});

// ---- loss, optimizer, norms (reference_training.cpp) ----------------------------------------------------------------

/// losses[n] = log(sum over v < vocab of exp(logits[n, v])) - logits[n, targets[n]].
/// logits (N, Vp), of which the first `vocab` columns count; targets, losses (N). Throws Error for targets >= vocab.
void cross_entropy_forward(Values logits, Tokens targets, Index vocab, Output losses);

/// The same losses, and in place logits = (softmax(logits) - onehot(target)) * scale, 0 in the columns >= vocab.
void cross_entropy_backward_fused(Output logits, Tokens targets, Index vocab, double scale, Output losses);

struct AdamStep {
  double learning_rate, beta1, beta2, epsilon, weight_decay;
  double gradient_scale = 1; ///< multiplies the gradient first: clipping
  Index step = 1;            ///< from 1, for the bias correction
};

/// g = gradient * gradient_scale; m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g^2;
/// parameter -= learning_rate * (m^ / (sqrt(v^) + epsilon) + weight_decay * parameter), m^ = m / (1 - beta1^step),
/// v^ likewise. All (n); parameter, m and v in place.
void adamw_update(Values gradient, Output parameter, Output m, Output v, AdamStep const& step);

/// The same with g = gradient * gradient_scale + weight_decay * parameter, and
/// parameter -= learning_rate * m^ / (sqrt(v^) + epsilon).
void adam_update(Values gradient, Output parameter, Output m, Output v, AdamStep const& step);

struct SgdStep {
  double learning_rate, momentum, weight_decay;
  double gradient_scale = 1; ///< multiplies the gradient first: clipping
};

/// g = gradient * gradient_scale + weight_decay * parameter; velocity = momentum * velocity + g;
/// parameter -= learning_rate * velocity. All (n); parameter and velocity in place.
void sgd_update(Values gradient, Output parameter, Output velocity, SgdStep const& step);

/// Sum of squares; sum.
double squared_norm(Values x);
double sum(Values x);

/// The factor that brings a gradient's norm to at most `clip`: min(1, clip / (norm + 1e-6)); 1 if clip is 0.
double clip_scale(double norm, double clip);

} // namespace trainstone::reference
