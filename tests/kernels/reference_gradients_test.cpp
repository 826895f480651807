// Each layer of the reference alone: its gradient against finite differences of its forward, and closed forms.
//
// A layer becomes a number by weighing its outputs, f = sum of w y, so that d_y = w. Slopes by the central difference
// of fourth order with h = 1e-3: truncation h^4 / 30 f''''' = 3e-14 f''''', rounding 1.5 eps |f| / h = 3e-13 |f|.
// Values lie in (-1, 1) and are few, so that |f| < 100 and f''''' < 1e3 (a softmax or a norm of values this far apart):
// 1e-10 holds both.

#include "core/error.hpp"
#include "kernels/reference/reference.hpp"
#include "support/compare.hpp"
#include "support/fixtures.hpp"
#include "support/reference_model.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

using namespace trainstone;
using namespace trainstone::test;

namespace {

using Table = std::vector<double>;

constexpr double h = 1e-3;
constexpr double slope_bound = 1e-10;

/// Distinct values in (-1, 1), the same on every machine.
Table random_values(Index count, std::uint64_t seed) {
  std::mt19937_64 engine(seed);
  Table values(static_cast<std::size_t>(count));
  for (double& value : values) value = static_cast<double>(engine()) * 0x1p-63 - 1;
  return values;
}

double weighted(Table const& weights, Table const& values) {
  double total = 0;
  for (std::size_t i = 0; i < values.size(); ++i) total += weights[i] * values[i];
  return total;
}

/// Slope of f along one variable.
template <class Function>
double slope(Function const& f, double& variable) {
  double const middle = variable;
  auto const at = [&](double shift) {
    variable = middle + shift;
    return f();
  };
  double const result = (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h);
  variable = middle;
  return result;
}

/// What differs between `gradient` and the slopes of f along all of x; "" if nothing does.
template <class Function>
std::string check_gradient(Table const& gradient, Table& x, Function const& f) {
  Table slopes;
  for (double& variable : x) slopes.push_back(slope(f, variable));
  return mismatches<double, double>(gradient, slopes, slope_bound);
}

} // namespace

TEST_CASE("reference embedding: gradients are slopes, unused positions get none", "[reference]") {
  Index const sequence = 3, channels = 5, vocab = 4, context = 4;
  std::vector<std::int32_t> const tokens{2, 0, 2, 3, 2, 2};
  Table wte = random_values(vocab * channels, 1);
  Table wpe = random_values(context * channels, 2);
  Table const w = random_values(std::ssize(tokens) * channels, 3);
  auto const f = [&] {
    Table out(w.size());
    reference::embedding_forward(tokens, wte, wpe, sequence, out);
    return weighted(w, out);
  };
  Table d_wte(wte.size()), d_wpe(wpe.size());
  reference::embedding_backward(tokens, w, sequence, d_wte, d_wpe);
  CHECK(check_gradient(d_wte, wte, f) == "");
  CHECK(check_gradient(d_wpe, wpe, f) == "");
}

TEST_CASE("reference layer norm: gradients are slopes and are added", "[reference]") {
  Index const rows = 3, channels = 7;
  Table x = random_values(rows * channels, 1);
  Table gamma = random_values(channels, 2);
  Table beta = random_values(channels, 3);
  Table const w = random_values(rows * channels, 4);
  Table mean(rows), rstd(rows);
  auto const f = [&] {
    Table y(x.size()), other_mean(rows), other_rstd(rows);
    reference::layernorm_forward(x, gamma, beta, y, other_mean, other_rstd);
    return weighted(w, y);
  };
  Table y(x.size());
  reference::layernorm_forward(x, gamma, beta, y, mean, rstd);

  Table d_x(x.size(), 1.0), d_gamma(gamma.size(), 2.0), d_beta(beta.size(), 3.0);
  reference::layernorm_backward(w, x, gamma, mean, rstd, d_x, d_gamma, d_beta);
  for (double& value : d_x) value -= 1;
  for (double& value : d_gamma) value -= 2;
  for (double& value : d_beta) value -= 3;
  CHECK(check_gradient(d_x, x, f) == "");
  CHECK(check_gradient(d_gamma, gamma, f) == "");
  CHECK(check_gradient(d_beta, beta, f) == "");
}

TEST_CASE("reference residual layer norm is the norm of the sum", "[reference]") {
  Index const rows = 3, channels = 7;
  Table const x = random_values(rows * channels, 1), branch = random_values(rows * channels, 2);
  Table const bias = random_values(channels, 3), gamma = random_values(channels, 4), beta = random_values(channels, 5);
  Table sum(x.size()), y(x.size()), mean(rows), rstd(rows);
  reference::residual_layernorm_forward(x, branch, bias, gamma, beta, sum, y, mean, rstd);

  Table expected_sum(x.size()), expected_y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) expected_sum[i] = x[i] + branch[i] + bias[i % channels];
  reference::layernorm_forward(expected_sum, gamma, beta, expected_y, mean, rstd);
  CHECK(sum == expected_sum);
  CHECK(y == expected_y);
}

TEST_CASE("reference bias and GELU: gradients are slopes", "[reference]") {
  Index const rows = 3, channels = 5;
  Table x = random_values(rows * channels, 1);
  for (double& value : x) value *= 3;
  Table bias = random_values(channels, 2);
  Table const w = random_values(rows * channels, 3);
  auto const f = [&] {
    Table biased = x, y(x.size());
    reference::bias_gelu_forward(bias, biased, y);
    return weighted(w, y);
  };
  Table biased = x, y(x.size()), d_x = w, d_bias(bias.size());
  reference::bias_gelu_forward(bias, biased, y);
  reference::gelu_backward(biased, d_x);
  reference::bias_backward(d_x, d_bias);
  CHECK(check_gradient(d_x, x, f) == "");
  CHECK(check_gradient(d_bias, bias, f) == "");
  CHECK(reference::gelu(0) == 0);
  CHECK(reference::gelu(30) == 30);
  CHECK(reference::gelu(-30) == 0);
}

TEST_CASE("reference GEMM adds the sum over k, whatever is transposed", "[reference]") {
  bool const transpose_a = GENERATE(false, true), transpose_b = GENERATE(false, true);
  Index const m = 3, n = GENERATE(0, 1, 5), k = GENERATE(0, 1, 7);
  Table const a = random_values(m * k, 1), b = random_values(k * n, 2), before = random_values(m * n, 3);
  Table c = before, expected = before;
  reference::gemm({m, n, k, transpose_a, transpose_b}, a, b, c);
  for (Index i = 0; i < m; ++i)
    for (Index j = 0; j < n; ++j)
      for (Index p = 0; p < k; ++p)
        expected[i * n + j] += a[transpose_a ? p * m + i : i * k + p] * b[transpose_b ? j * k + p : p * n + j];
  // sums of at most 8 terms below 1: 8 eps, twice because one side may fuse multiply and add
  CHECK(mismatches<double, double>(c, expected, 16 * 0x1p-53) == "");
}

TEST_CASE("reference attention: gradient is the slope, probabilities are causal and sum to one", "[reference]") {
  Index const sequence = GENERATE(1, 5);
  reference::AttentionShape const shape{.batch = 2, .sequence = sequence, .heads = 3, .head_size = 7};
  Index const rows = shape.batch * sequence, channels = shape.heads * shape.head_size;
  Table qkv = random_values(rows * 3 * channels, 1);
  Table const w = random_values(rows * channels, 2);
  Table probabilities(static_cast<std::size_t>(shape.batch * shape.heads * sequence * sequence), -1.0), out(w.size());
  auto const f = [&] {
    Table other = probabilities, y(w.size());
    reference::attention_forward(shape, qkv, other, y);
    return weighted(w, y);
  };
  reference::attention_forward(shape, qkv, probabilities, out);
  Table d_qkv(qkv.size(), -1.0);
  reference::attention_backward(shape, qkv, probabilities, w, d_qkv);
  CHECK(check_gradient(d_qkv, qkv, f) == "");

  Index above_diagonal = 0;
  for (Index row = 0; row < shape.batch * shape.heads * sequence; ++row) {
    auto const p = std::span(probabilities).subspan(row * sequence, sequence);
    CHECK(std::abs(reference::sum(p) - 1) <= 8 * 0x1p-53); // 5 quotients of a sum of 5: some roundings each
    for (Index u = row % sequence + 1; u < sequence; ++u) above_diagonal += p[u] != 0;
  }
  CHECK(above_diagonal == 0);
  for (Index c = 0; c < channels; ++c) CHECK(out[c] == qkv[2 * channels + c]); // the first token sees itself alone
}

TEST_CASE("reference attention: gradient is the slope where probabilities are multiplied with factors", "[reference]") {
  reference::AttentionShape const shape{.batch = 2, .sequence = 5, .heads = 3, .head_size = 2};
  Table qkv = random_values(2 * 5 * 3 * 6, 1);
  Table const w = random_values(2 * 5 * 6, 2), factors = random_values(2 * 3 * 5 * 5, 3);
  Table probabilities(factors.size()), plain(factors.size()), out(w.size()), d_qkv(qkv.size(), -1.0);
  auto const f = [&] {
    Table other = probabilities, y(w.size());
    reference::attention_forward(shape, qkv, other, y, factors);
    return weighted(w, y);
  };
  reference::attention_forward(shape, qkv, plain, out);
  reference::attention_forward(shape, qkv, probabilities, out, factors);
  CHECK(probabilities == plain);         // kept without the factors
  CHECK(out[0] == factors[0] * qkv[12]); // the first token sees itself alone
  reference::attention_backward(shape, qkv, probabilities, w, d_qkv, factors);
  CHECK(check_gradient(d_qkv, qkv, f) == "");
}

TEST_CASE("reference cross-entropy: gradient is the slope, padding is not read and gets none", "[reference]") {
  Index const rows = 4, vocab = 5, padded_vocab = 8;
  double const scale = 0.25;
  std::vector<std::int32_t> const targets{0, 4, 2, 2};
  Table logits = random_values(rows * padded_vocab, 1);
  for (Index n = 0; n < rows; ++n)
    for (Index v = vocab; v < padded_vocab; ++v) logits[n * padded_vocab + v] = std::nan("");
  auto const f = [&] {
    Table losses(rows);
    reference::cross_entropy_forward(logits, targets, vocab, losses);
    return scale * reference::sum(losses);
  };
  Table d_logits = logits, losses(rows), same_losses(rows);
  reference::cross_entropy_backward_fused(d_logits, targets, vocab, scale, losses);
  CHECK(check_gradient(d_logits, logits, f) == "");
  reference::cross_entropy_forward(logits, targets, vocab, same_losses);
  CHECK(losses == same_losses);

  Table const uniform(rows * padded_vocab, 700.0); // exp(700) squared would overflow
  reference::cross_entropy_forward(uniform, targets, vocab, losses);
  CHECK(mismatches<double, double>(losses, Table(rows, std::log(5.0)), 1000 * 0x1p-53) == ""); // rounded at 700
}

TEST_CASE("reference AdamW has the closed forms of constant gradients and of pure decay", "[reference]") {
  reference::AdamStep step{.learning_rate = 1e-2, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .weight_decay = 0};
  Table const start{1, -2, 0.5}, gradient{0.25, -3, 1e-8};
  Table parameter = start, m(3), v(3);
  step.gradient_scale = 0.5;
  for (step.step = 1; step.step <= 7; ++step.step) reference::adamw_update(gradient, parameter, m, v, step);
  Table expected = start; // both corrected moments stay g and g^2, so each step is the first one
  for (std::size_t i = 0; i < 3; ++i) {
    double const g = 0.5 * gradient[i];
    expected[i] -= 7 * step.learning_rate * g / (std::abs(g) + step.epsilon);
  }
  // 1 - beta2^step loses three digits for step 1: 1000 eps of each of 7 updates of 1e-2
  CHECK(mismatches<double, double>(parameter, expected, 1000 * 0x1p-53 * 0.07 + 8 * 0x1p-53) == "");

  step.weight_decay = 0.1;
  parameter = start;
  m = v = Table(3);
  for (step.step = 1; step.step <= 7; ++step.step) reference::adamw_update(Table(3), parameter, m, v, step);
  for (std::size_t i = 0; i < 3; ++i) expected[i] = start[i] * std::pow(1 - 1e-2 * 0.1, 7);
  CHECK(mismatches<double, double>(parameter, expected, 2 * 14 * 0x1p-53) == ""); // 14 roundings below 2
}

TEST_CASE("reference Adam decays through its moments", "[reference]") {
  reference::AdamStep step{.learning_rate = 1e-2, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .weight_decay = 0.1};
  Table const start{1, -2, 0.5}, gradient{0.25, -3, 2};
  Table parameter = start, m(3), v(3);
  step.gradient_scale = 0.5;
  reference::adam_update(gradient, parameter, m, v, step);
  for (std::size_t i = 0; i < 3; ++i) {
    double const g = 0.5 * gradient[i] + 0.1 * start[i];
    // 1 - beta2 loses three digits, of an update of 1e-2
    CHECK(std::abs(parameter[i] - (start[i] - 1e-2 * g / (std::abs(g) + 1e-8))) <= 1000 * 0x1p-53 * 1e-2 + 4 * 0x1p-53);
    CHECK(std::abs(m[i] - 0.1 * g) <= 4 * 0x1p-53);
    CHECK(std::abs(v[i] - 0.001 * g * g) <= 4 * 0x1p-53);
  }
}

TEST_CASE("reference gradient descent has the closed forms of constant gradients and of pure decay", "[reference]") {
  constexpr int steps = 7;
  Table const start{1, -2, 0.5}, gradient{0.25, -3, 2};
  Table parameter = start, velocity(3);
  for (int i = 0; i < steps; ++i) reference::sgd_update(gradient, parameter, velocity, {0.01, 0.9, 0, 0.5});
  double distance = 0; // sum over steps t of the geometric series up to momentum^(t - 1)
  for (int t = 1; t <= steps; ++t) distance += (1 - std::pow(0.9, t)) / (1 - 0.9);
  Table expected = start;
  for (std::size_t i = 0; i < 3; ++i) expected[i] -= 0.01 * distance * 0.5 * gradient[i];
  // parameters below 2 and velocities below 8, each rounded at most three times per step
  CHECK(mismatches<double, double>(parameter, expected, steps * 3 * (2 + 8) * 0x1p-53) == "");

  parameter = start;
  velocity = Table(3);
  for (int i = 0; i < steps; ++i) reference::sgd_update(Table(3), parameter, velocity, {0.01, 0, 0.1});
  for (std::size_t i = 0; i < 3; ++i) expected[i] = start[i] * std::pow(1 - 0.01 * 0.1, steps);
  CHECK(mismatches<double, double>(parameter, expected, 2 * 2 * steps * 0x1p-53) == ""); // two roundings below 2 each
}

TEST_CASE("reference clipping scales to the limit and never up", "[reference]") {
  CHECK(reference::squared_norm(Table{3, -4}) == 25);
  CHECK(reference::squared_norm(Table{}) == 0);
  CHECK(reference::clip_scale(5, 0) == 1);
  CHECK(reference::clip_scale(0.5, 1) == 1);
  CHECK(reference::clip_scale(5, 1) == 1 / (5 + 1e-6));
}

TEST_CASE("the reference model's gradient is the slope of its loss along random directions", "[reference]") {
  Fixture const fixture = find_fixture("gpt_odd");
  ReferenceModel model(fixture.model);
  LlmcStateReader state(fixture.state, model.shape());
  auto const loss = [&] { return model.forward(state.inputs(), state.targets(), state.sequence()); };
  loss();
  model.backward();
  Table const start(model.parameters().begin(), model.parameters().end());
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    // of length about 1, as 53,424 values of (-1, 1) have length 133
    Table direction = random_values(std::ssize(start), seed);
    for (double& value : direction) value /= 133;
    Table const gradient(model.gradients().begin(), model.gradients().end());
    double distance = 0;
    auto const f = [&] {
      for (std::size_t i = 0; i < start.size(); ++i) model.parameters()[i] = start[i] + distance * direction[i];
      return loss();
    };
    CHECK(std::abs(slope(f, distance) - weighted(gradient, direction)) <= slope_bound);
  }
}

TEST_CASE("the reference refuses extents and tokens that do not fit", "[reference]") {
  std::vector<std::int32_t> const token{3};
  Table two(2), three(3), six(6), one(1);
  CHECK_THROWS_AS(reference::embedding_forward(token, six, two, 1, two), Error); // token 3 of 3 rows
  CHECK_THROWS_AS(reference::layernorm_forward(six, three, two, six, two, two), Error);
  CHECK_THROWS_AS(reference::gemm({2, 3, 1}, two, two, six), Error);
  CHECK_THROWS_AS(reference::attention_forward({1, 1, 1, 2}, six, two, two), Error);
  CHECK_THROWS_AS(reference::cross_entropy_forward(three, token, 3, one), Error);
  CHECK_THROWS_AS(reference::adamw_update(two, two, two, three, {}), Error);
  CHECK_THROWS_AS(reference::adam_update(three, two, two, two, {}), Error);
  CHECK_THROWS_AS(reference::sgd_update(two, two, three, {}), Error);
}
