// Causal attention of the reference: one (batch, head) at a time, the probabilities materialised.

#include "kernels/reference/reference.hpp"

#include "core/error.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

namespace trainstone::reference {

namespace {

/// Where one head of one sequence lies in qkv, probabilities and out.
struct Head {
  Index sequence, size;
  Index channels;     ///< C = NH HS
  Index first_row;    ///< b T
  Index first_column; ///< h HS
  Index first_probability;

  Head(AttentionShape const& shape, Index b, Index h)
      : sequence(shape.sequence),
        size(shape.head_size),
        channels(shape.heads * shape.head_size),
        first_row(b * sequence),
        first_column(h * size),
        first_probability((b * shape.heads + h) * sequence * sequence) {}

  Index query(Index t) const { return (first_row + t) * 3 * channels + first_column; }
  Index key(Index t) const { return query(t) + channels; }
  Index value(Index t) const { return query(t) + 2 * channels; }
  Index out(Index t) const { return (first_row + t) * channels + first_column; }
  Index probability(Index t) const { return first_probability + t * sequence; }
  double scale() const { return 1 / std::sqrt(static_cast<double>(size)); }
};

double dot(double const* a, double const* b, Index size) {
  double total = 0;
  for (Index i = 0; i < size; ++i) total += a[i] * b[i];
  return total;
}

/// y += factor x
void add_scaled(double factor, double const* x, double* y, Index size) {
  for (Index i = 0; i < size; ++i) y[i] += factor * x[i];
}

/// Turns `size` scores, size >= 1, into probabilities, in place.
void softmax(double* scores, Index size) {
  double const maximum = *std::max_element(scores, scores + size);
  double total = 0;
  for (Index u = 0; u < size; ++u) {
    scores[u] = std::exp(scores[u] - maximum);
    total += scores[u];
  }
  for (Index u = 0; u < size; ++u) scores[u] /= total;
}

/// Of the probability at this index; 1 without dropout.
double factor(Values factors, Index probability) {
  return factors.empty() ? 1.0 : factors[static_cast<std::size_t>(probability)];
}

void head_forward(Head const& head, double const* qkv, double* probabilities, double* out, Values factors) {
  for (Index t = 0; t < head.sequence; ++t) {
    double* p = probabilities + head.probability(t);
    for (Index u = 0; u <= t; ++u) p[u] = head.scale() * dot(qkv + head.query(t), qkv + head.key(u), head.size);
    softmax(p, t + 1);
    std::fill(p + t + 1, p + head.sequence, 0.0);
    double* out_row = out + head.out(t);
    std::fill(out_row, out_row + head.size, 0.0);
    for (Index u = 0; u <= t; ++u)
      add_scaled(p[u] * factor(factors, head.probability(t) + u), qkv + head.value(u), out_row, head.size);
  }
}

// Through out = (P f) v:    d_P[u] = f[u] d_out . v[u],  d_v[u] += P[u] f[u] d_out
// through the softmax:      d_score[u] = P[u] (d_P[u] - sum over w of P[w] d_P[w])
// through scale q . k[u]:   d_q += scale d_score[u] k[u],  d_k[u] += scale d_score[u] q
void head_backward(Head const& head, double const* qkv, double const* probabilities, double const* d_out, double* d_qkv,
                   Values factors) {
  std::vector<double> d_p(head.sequence);
  for (Index t = 0; t < head.sequence; ++t) {
    double const* p = probabilities + head.probability(t);
    double const* d_out_row = d_out + head.out(t);
    for (Index u = 0; u <= t; ++u) {
      double const f = factor(factors, head.probability(t) + u);
      d_p[u] = f * dot(d_out_row, qkv + head.value(u), head.size);
      add_scaled(p[u] * f, d_out_row, d_qkv + head.value(u), head.size);
    }
    double const average = dot(p, d_p.data(), t + 1);
    for (Index u = 0; u <= t; ++u) {
      double const d_score = head.scale() * p[u] * (d_p[u] - average);
      add_scaled(d_score, qkv + head.key(u), d_qkv + head.query(t), head.size);
      add_scaled(d_score, qkv + head.query(t), d_qkv + head.key(u), head.size);
    }
  }
}

void require_extents(AttentionShape const& shape, Values qkv, Values probabilities, Values out, Values factors) {
  auto const [batch, sequence, heads, head_size] = shape;
  Index const elements = batch * sequence * heads * head_size;
  TRAINSTONE_REQUIRE(std::ssize(qkv) == 3 * elements && std::ssize(out) == elements &&
                         std::ssize(probabilities) == batch * heads * sequence * sequence,
                     "qkv of {}, probabilities of {} and output of {} elements do not fit B {} T {} NH {} HS {}",
                     qkv.size(), probabilities.size(), out.size(), batch, sequence, heads, head_size);
  TRAINSTONE_REQUIRE(factors.empty() || factors.size() == probabilities.size(), "{} factors for {} probabilities",
                     factors.size(), probabilities.size());
}

} // namespace

void attention_forward(AttentionShape const& shape, Values qkv, Output probabilities, Output out, Values factors) {
  require_extents(shape, qkv, probabilities, out, factors);
  for (Index b = 0; b < shape.batch; ++b)
    for (Index h = 0; h < shape.heads; ++h)
      head_forward(Head(shape, b, h), qkv.data(), probabilities.data(), out.data(), factors);
}

void attention_backward(AttentionShape const& shape, Values qkv, Values probabilities, Values d_out, Output d_qkv,
                        Values factors) {
  require_extents(shape, qkv, probabilities, d_out, factors);
  TRAINSTONE_REQUIRE(d_qkv.size() == qkv.size(), "d_qkv has {} elements, qkv {}", d_qkv.size(), qkv.size());
  std::fill(d_qkv.begin(), d_qkv.end(), 0.0);
  for (Index b = 0; b < shape.batch; ++b)
    for (Index h = 0; h < shape.heads; ++h)
      head_backward(Head(shape, b, h), qkv.data(), probabilities.data(), d_out.data(), d_qkv.data(), factors);
}

} // namespace trainstone::reference
