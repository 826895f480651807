#pragma once

// A problem of causal attention, its fp64 reference, and bounds of what kernels may differ from it by.

#include "kernels/dropout.hpp"
#include "kernels/reference/reference.hpp"
#include "support/compare.hpp"
#include "support/views.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace trainstone::test {

/// Multiples of 2^-7 in [-size, size]: the same values in all storage types while size <= 1.
inline std::vector<float> coarse_values(Index count, std::uint64_t seed, double size) {
  std::vector<float> values = random_values(count, seed, -1.0, 1.0);
  for (float& value : values) value = std::round(value * 128.0F) / 128.0F * static_cast<float>(size);
  return values;
}

struct AttentionProblem {
  using Shape = reference::AttentionShape; ///< batch, sequence, heads, head_size

  Shape shape;
  Dropout dropout;
  std::vector<float> qkv, d_out;

  explicit AttentionProblem(Shape const& s, Dropout const& drop = {}, double size = 1.0)
      : shape(s),
        dropout(drop),
        qkv(coarse_values(rows() * 3 * channels(), 1, size)),
        d_out(coarse_values(rows() * channels(), 2, 1.0)) {}
  Index rows() const { return shape.batch * shape.sequence; }
  Index channels() const { return shape.heads * shape.head_size; }
  Index pairs() const { return shape.batch * shape.heads * shape.sequence * shape.sequence; }

  /// What every probability is multiplied with; empty without dropout.
  std::vector<double> factors() const {
    if (!dropout.is_on()) return {};
    std::vector<double> result(static_cast<std::size_t>(pairs()));
    for (Index i = 0; i < shape.batch * shape.heads; ++i)
      reference::dropout_factors(
          {dropout.rate, dropout.seed, dropout.first_sample + static_cast<std::uint64_t>(i / shape.heads),
           dropout.site},
          shape.sequence, i % shape.heads, shape.sequence,
          std::span(result).subspan(static_cast<std::size_t>(i * shape.sequence * shape.sequence),
                                    static_cast<std::size_t>(shape.sequence * shape.sequence)));
    return result;
  }
};

struct AttentionResult {
  std::vector<double> log_sum_exp, out, d_qkv;
};

/// In fp64, for comparison with all storage types.
struct AttentionReference : AttentionResult {
  double column = 0; ///< the largest norm of what all queries give one key
  double factor = 1; ///< of a probability that is kept

  explicit AttentionReference(AttentionProblem const& problem) {
    AttentionProblem::Shape const& s = problem.shape;
    std::vector<double> const factors = problem.factors(), qkv = widened(problem.qkv);
    std::vector<double> probabilities(static_cast<std::size_t>(problem.pairs()));
    out.resize(problem.d_out.size());
    d_qkv.resize(problem.qkv.size());
    reference::attention_forward(s, qkv, probabilities, out, factors);
    reference::attention_backward(s, qkv, probabilities, widened(problem.d_out), d_qkv, factors);
    if (problem.dropout.is_on()) factor = 1 / (1 - problem.dropout.rate);
    for (Index head = 0; head < s.batch * s.heads; ++head) {
      double const* const p = probabilities.data() + head * s.sequence * s.sequence;
      for (Index t = 0; t < s.sequence; ++t) {
        // probability = e^(score - log_sum_exp), at the diagonal
        double const* const query =
            qkv.data() + (head / s.heads * s.sequence + t) * 3 * problem.channels() + head % s.heads * s.head_size;
        double score = 0, squares = 0;
        for (Index d = 0; d < s.head_size; ++d) score += query[d] * query[problem.channels() + d];
        log_sum_exp.push_back(score / std::sqrt(static_cast<double>(s.head_size)) - std::log(p[t * s.sequence + t]));
        for (Index later = t; later < s.sequence; ++later) squares += std::pow(p[later * s.sequence + t], 2);
        column = std::max(column, std::sqrt(squares));
      }
    }
  }
};

/// Empty if the result of kernels with storage type T is as near to the expected one as can be derived.
/// \param[in] narrow  relative error of weights and of the gradients of scores that are rounded before they are
/// multiplied
template <class T>
std::string attention_mismatches(AttentionProblem const& problem, AttentionReference const& expected,
                                 AttentionResult const& actual, double narrow = 0) {
  double const root = std::sqrt(static_cast<double>(problem.shape.head_size));
  double const sequence = static_cast<double>(problem.shape.sequence), factor = expected.factor, u = roundoff;
  // Values are independent and uniform in [-1, 1], so that sums of n of their products stay below 2 sqrt(n) (six sigma)
  // and have errors of random signs below 2 u n; a score, divided by the root, u (2 sqrt(n) + 8) with its scale's.
  double const score_error = u * (2 * root + 8);
  // A weight has its own score's error and those of the others (the normalisation's), exponentials a few u, sums of T
  // terms u sqrt(T), and a few u for each tile, of at least 16 keys, that raises the maximum.
  double const weight_error = 2 * score_error + u * (std::sqrt(sequence) + 4 * (sequence / 16 + 1) + 16);
  double const log_error = weight_error + 2 * u * (2 + std::log(sequence));
  // The mean of values <= 1, of which those not dropped grew by the factor.
  double const out_error = factor * (weight_error + narrow + u * std::sqrt(sequence));
  // Probabilities are computed again from score and log_sum_exp. d_p and its mean are sums of n products, <= 2 factor
  // sqrt(n); the mean is made of the stored `out`, whose n errors have random signs. All of it is divided by the root
  // and weighted with probabilities: along a query they sum to 1, along a key errors of random signs add up to
  // `column`.
  double const p_error = score_error + log_error + 3 * u + u * std::sqrt(sequence);
  double const d_error = std::max(1.0, expected.column) *
                         (4 * factor * (p_error + narrow + u * root) + storing_error<T>(factor) + out_error);
  return mismatches<double, double>(actual.log_sum_exp, expected.log_sum_exp, log_error) +
         mismatches<double, double>(actual.out, expected.out, stored_within<T>(out_error)) +
         mismatches<double, double>(actual.d_qkv, expected.d_qkv, stored_within<T>(d_error));
}

} // namespace trainstone::test
