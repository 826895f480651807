// Dropout, loss, optimizer and norms of the reference.

#include "kernels/reference/reference.hpp"

#include "core/error.hpp"

#include <Random123/philox.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <vector>

namespace trainstone::reference {

namespace {

/// log(sum of exp) of a row.
double log_sum_exp(Values row) {
  double const maximum = *std::max_element(row.begin(), row.end());
  double total = 0;
  for (double const value : row) total += std::exp(value - maximum);
  return maximum + std::log(total);
}

/// The row length Vp of logits (N, Vp), after checks.
std::size_t padded_vocab_of(Values logits, Tokens targets, Index vocab, Values losses) {
  TRAINSTONE_REQUIRE(losses.size() == targets.size() && logits.size() % targets.size() == 0,
                     "logits of {} elements and {} losses do not fit {} targets", logits.size(), losses.size(),
                     targets.size());
  std::size_t const padded_vocab = logits.size() / targets.size();
  TRAINSTONE_REQUIRE(1 <= vocab && vocab <= static_cast<Index>(padded_vocab), "vocab {} of a row of {} logits", vocab,
                     padded_vocab);
  for (std::int32_t const target : targets)
    TRAINSTONE_REQUIRE(0 <= target && target < vocab, "target {} is outside a vocabulary of {}", target, vocab);
  return padded_vocab;
}

} // namespace

void cross_entropy_forward(Values logits, Tokens targets, Index vocab, Output losses) {
  if (targets.empty()) return;
  std::size_t const padded_vocab = padded_vocab_of(logits, targets, vocab, losses);
  for (std::size_t n = 0; n < targets.size(); ++n) {
    Values const row = logits.subspan(n * padded_vocab, vocab);
    losses[n] = log_sum_exp(row) - row[targets[n]];
  }
}

void cross_entropy_backward_fused(Output logits, Tokens targets, Index vocab, double scale, Output losses) {
  if (targets.empty()) return;
  std::size_t const padded_vocab = padded_vocab_of(logits, targets, vocab, losses);
  for (std::size_t n = 0; n < targets.size(); ++n) {
    Output const padded_row = logits.subspan(n * padded_vocab, padded_vocab);
    Output const row = padded_row.first(vocab);
    Index const target = targets[n];
    double const log_sum = log_sum_exp(row);
    losses[n] = log_sum - row[target];
    for (double& value : row) value = std::exp(value - log_sum) * scale;
    row[target] -= scale;
    std::fill(padded_row.begin() + vocab, padded_row.end(), 0.0);
  }
}

void adamw_update(Values gradient, Output parameter, Output m, Output v, AdamStep const& step) {
  TRAINSTONE_REQUIRE(gradient.size() == parameter.size() && m.size() == parameter.size() &&
                         v.size() == parameter.size(),
                     "gradient of {}, parameter of {}, m of {} and v of {} elements", gradient.size(), parameter.size(),
                     m.size(), v.size());
  double const m_correction = 1 / (1 - std::pow(step.beta1, static_cast<double>(step.step)));
  double const v_correction = 1 / (1 - std::pow(step.beta2, static_cast<double>(step.step)));
  for (std::size_t i = 0; i < parameter.size(); ++i) {
    double const g = gradient[i] * step.gradient_scale;
    m[i] = step.beta1 * m[i] + (1 - step.beta1) * g;
    v[i] = step.beta2 * v[i] + (1 - step.beta2) * g * g;
    double const direction = m[i] * m_correction / (std::sqrt(v[i] * v_correction) + step.epsilon);
    parameter[i] -= step.learning_rate * (direction + step.weight_decay * parameter[i]);
  }
}

void adam_update(Values gradient, Output parameter, Output m, Output v, AdamStep const& step) {
  TRAINSTONE_REQUIRE(gradient.size() == parameter.size(), "gradient of {} and parameter of {} elements",
                     gradient.size(), parameter.size());
  std::vector<double> decayed(gradient.begin(), gradient.end());
  for (std::size_t i = 0; i < decayed.size(); ++i)
    decayed[i] = decayed[i] * step.gradient_scale + step.weight_decay * parameter[i];
  AdamStep without_decay = step;
  without_decay.weight_decay = 0;
  without_decay.gradient_scale = 1;
  adamw_update(decayed, parameter, m, v, without_decay);
}

void sgd_update(Values gradient, Output parameter, Output velocity, SgdStep const& step) {
  TRAINSTONE_REQUIRE(gradient.size() == parameter.size() && velocity.size() == parameter.size(),
                     "gradient of {}, parameter of {} and velocity of {} elements", gradient.size(), parameter.size(),
                     velocity.size());
  for (std::size_t i = 0; i < parameter.size(); ++i) {
    velocity[i] = step.momentum * velocity[i] + gradient[i] * step.gradient_scale + step.weight_decay * parameter[i];
    parameter[i] -= step.learning_rate * velocity[i];
  }
}

double squared_norm(Values x) {
  double total = 0;
  for (double const value : x) total += value * value;
  return total;
}

double sum(Values x) {
  double total = 0;
  for (double const value : x) total += value;
  return total;
}

double clip_scale(double norm, double clip) { return clip > 0 ? std::min(1.0, clip / (norm + 1e-6)) : 1.0; }

void dropout_factors(DropoutSite const& site, Index sequence, Index head, Index columns, Output factors) {
  auto const low = [](std::uint64_t value) { return static_cast<std::uint32_t>(value); };
  for (std::size_t i = 0; i < factors.size(); ++i) {
    auto const [n, c] = std::div(static_cast<Index>(i), columns);
    auto const position = static_cast<std::uint64_t>(n % sequence);
    std::uint64_t const sample = site.first_sample + static_cast<std::uint64_t>(n / sequence);
    r123::Philox4x32::ctr_type const words =
        r123::Philox4x32()({{low(static_cast<std::uint64_t>(c / 4 + (head << 18))),
                             low(position + (sample >> 32 << 20)), 5 + (site.site << 8), low(sample)}},
                           {{low(site.seed), low(site.seed >> 32)}});
    factors[i] = words[static_cast<std::size_t>(c % 4)] < site.rate * 0x1p32 ? 0.0 : 1 / (1 - site.rate);
  }
}

void dropout(Values factors, Output x) {
  TRAINSTONE_REQUIRE(factors.size() == x.size(), "{} factors for {} elements", factors.size(), x.size());
  for (std::size_t i = 0; i < x.size(); ++i) x[i] *= factors[i];
}

} // namespace trainstone::reference
