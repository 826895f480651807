#include "kernels/reference/reference.hpp"

#include "core/error.hpp"

#include <cmath>
#include <numbers>
#include <vector>

namespace trainstone::reference {

namespace {

constexpr double gelu_scale = std::numbers::sqrt2 * std::numbers::inv_sqrtpi; // sqrt(2 / pi)
constexpr double gelu_cubic = 0.044715;

Index length(Values values) { return static_cast<Index>(values.size()); }

void require_length(char const* name, Values values, Index expected) {
  TRAINSTONE_REQUIRE(length(values) == expected, "{} has {} elements, expected {}", name, values.size(), expected);
}

/// The C of a table (rows, C).
Index columns_of(char const* name, Values table, Index rows) {
  TRAINSTONE_REQUIRE(length(table) % rows == 0, "{} has {} elements, expected a multiple of {} rows", name,
                     table.size(), rows);
  return length(table) / rows;
}

/// The N of a table (N, columns).
Index rows_of(char const* name, Values table, Index columns) {
  if (columns == 0) return 0;
  TRAINSTONE_REQUIRE(length(table) % columns == 0, "{} has {} elements, expected a multiple of {} columns", name,
                     table.size(), columns);
  return length(table) / columns;
}

double const* row(Values table, Index n, Index columns) { return table.data() + n * columns; }
double* row(Output table, Index n, Index columns) { return table.data() + n * columns; }

Index checked_token(Tokens tokens, Index n, Index vocab) {
  Index const token = tokens[n];
  TRAINSTONE_REQUIRE(0 <= token && token < vocab, "token {} at {} is outside the table of {} rows", token, n, vocab);
  return token;
}

} // namespace

void embedding_forward(Tokens tokens, Values wte, Values wpe, Index sequence, Output out) {
  Index const rows = std::ssize(tokens);
  if (rows == 0) return;
  Index const channels = columns_of("out", out, rows);
  Index const vocab = rows_of("wte", wte, channels);
  TRAINSTONE_REQUIRE(rows_of("wpe", wpe, channels) >= sequence, "sequence {} exceeds the {} rows of wpe", sequence,
                     rows_of("wpe", wpe, channels));
  for (Index n = 0; n < rows; ++n) {
    double const* token_row = row(wte, checked_token(tokens, n, vocab), channels);
    double const* position_row = row(wpe, n % sequence, channels);
    double* out_row = row(out, n, channels);
    for (Index c = 0; c < channels; ++c) out_row[c] = token_row[c] + position_row[c];
  }
}

void embedding_backward(Tokens tokens, Values d_out, Index sequence, Output d_wte, Output d_wpe) {
  Index const rows = std::ssize(tokens);
  if (rows == 0) return;
  Index const channels = columns_of("d_out", d_out, rows);
  Index const vocab = rows_of("d_wte", d_wte, channels);
  TRAINSTONE_REQUIRE(rows_of("d_wpe", d_wpe, channels) >= sequence, "sequence {} exceeds the {} rows of d_wpe",
                     sequence, rows_of("d_wpe", d_wpe, channels));
  for (Index n = 0; n < rows; ++n) {
    double const* d_out_row = row(d_out, n, channels);
    double* d_token_row = row(d_wte, checked_token(tokens, n, vocab), channels);
    double* d_position_row = row(d_wpe, n % sequence, channels);
    for (Index c = 0; c < channels; ++c) {
      d_token_row[c] += d_out_row[c];
      d_position_row[c] += d_out_row[c];
    }
  }
}

void layernorm_forward(Values x, Values gamma, Values beta, Output y, Output mean, Output rstd) {
  Index const rows = length(mean);
  Index const channels = length(gamma);
  require_length("x", x, rows * channels);
  require_length("beta", beta, channels);
  require_length("y", y, rows * channels);
  require_length("rstd", rstd, rows);
  for (Index n = 0; n < rows; ++n) {
    double const* x_row = row(x, n, channels);
    double* y_row = row(y, n, channels);
    double total = 0;
    for (Index c = 0; c < channels; ++c) total += x_row[c];
    double const row_mean = total / static_cast<double>(channels);
    double squares = 0;
    for (Index c = 0; c < channels; ++c) squares += (x_row[c] - row_mean) * (x_row[c] - row_mean);
    double const row_rstd = 1 / std::sqrt(squares / static_cast<double>(channels) + layernorm_epsilon);
    for (Index c = 0; c < channels; ++c) y_row[c] = (x_row[c] - row_mean) * row_rstd * gamma[c] + beta[c];
    mean[n] = row_mean;
    rstd[n] = row_rstd;
  }
}

void residual_layernorm_forward(Values x, Values branch, Values branch_bias, Values gamma, Values beta, Output sum,
                                Output y, Output mean, Output rstd) {
  residual_forward(x, branch, branch_bias, sum);
  layernorm_forward(sum, gamma, beta, y, mean, rstd);
}

// With x^ = (x - mean) rstd and g = d_y gamma:  d_x = rstd (g - mean(g) - x^ mean(g x^)).
void layernorm_backward(Values d_y, Values x, Values gamma, Values mean, Values rstd, Output d_x, Output d_gamma,
                        Output d_beta) {
  Index const rows = length(mean);
  Index const channels = length(gamma);
  require_length("d_y", d_y, rows * channels);
  require_length("x", x, rows * channels);
  require_length("rstd", rstd, rows);
  require_length("d_x", d_x, rows * channels);
  require_length("d_gamma", d_gamma, channels);
  require_length("d_beta", d_beta, channels);
  for (Index n = 0; n < rows; ++n) {
    double const* d_y_row = row(d_y, n, channels);
    double const* x_row = row(x, n, channels);
    double* d_x_row = row(d_x, n, channels);
    double const row_mean = mean[n];
    double const row_rstd = rstd[n];
    double total = 0;
    double total_with_x = 0;
    for (Index c = 0; c < channels; ++c) {
      double const normalised = (x_row[c] - row_mean) * row_rstd;
      d_gamma[c] += d_y_row[c] * normalised;
      d_beta[c] += d_y_row[c];
      total += d_y_row[c] * gamma[c];
      total_with_x += d_y_row[c] * gamma[c] * normalised;
    }
    double const average = total / static_cast<double>(channels);
    double const average_with_x = total_with_x / static_cast<double>(channels);
    for (Index c = 0; c < channels; ++c) {
      double const normalised = (x_row[c] - row_mean) * row_rstd;
      d_x_row[c] += row_rstd * (d_y_row[c] * gamma[c] - average - normalised * average_with_x);
    }
  }
}

void residual_forward(Values x, Values branch, Values branch_bias, Output sum) {
  Index const channels = length(branch_bias);
  Index const rows = rows_of("x", x, channels);
  require_length("branch", branch, rows * channels);
  require_length("sum", sum, rows * channels);
  for (Index n = 0; n < rows; ++n) {
    double const* x_row = row(x, n, channels);
    double const* branch_row = row(branch, n, channels);
    double* sum_row = row(sum, n, channels);
    for (Index c = 0; c < channels; ++c) sum_row[c] = x_row[c] + branch_row[c] + branch_bias[c];
  }
}

void add_bias(Values bias, Output x) {
  Index const channels = length(bias);
  Index const rows = rows_of("x", x, channels);
  for (Index n = 0; n < rows; ++n) {
    double* x_row = row(x, n, channels);
    for (Index c = 0; c < channels; ++c) x_row[c] += bias[c];
  }
}

double gelu(double x) { return 0.5 * x * (1 + std::tanh(gelu_scale * (x + gelu_cubic * x * x * x))); }

double gelu_derivative(double x) {
  double const t = std::tanh(gelu_scale * (x + gelu_cubic * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * gelu_scale * (1 + 3 * gelu_cubic * x * x);
}

void bias_gelu_forward(Values bias, Output x, Output y) {
  require_length("y", y, length(x));
  add_bias(bias, x);
  for (std::size_t i = 0; i < x.size(); ++i) y[i] = gelu(x[i]);
}

void gelu_backward(Values x, Output d_y_in_d_x_out) {
  require_length("d_y", d_y_in_d_x_out, length(x));
  for (std::size_t i = 0; i < x.size(); ++i) d_y_in_d_x_out[i] *= gelu_derivative(x[i]);
}

void bias_backward(Values d_y, Output d_bias) {
  Index const channels = length(d_bias);
  Index const rows = rows_of("d_y", d_y, channels);
  for (Index n = 0; n < rows; ++n) {
    double const* d_y_row = row(d_y, n, channels);
    for (Index c = 0; c < channels; ++c) d_bias[c] += d_y_row[c];
  }
}

void gemm(GemmShape const& shape, Values a, Values b, Output c) {
  auto const [m, n, k, transpose_a, transpose_b] = shape;
  require_length("a", a, m * k);
  require_length("b", b, k * n);
  require_length("c", c, m * n);
  // op(B) row by row, so that the innermost loop runs along rows of B and C whatever is transposed
  std::vector<double> op_b(b.begin(), b.end());
  if (transpose_b)
    for (Index j = 0; j < n; ++j)
      for (Index p = 0; p < k; ++p) op_b[p * n + j] = b[j * k + p];
  for (Index i = 0; i < m; ++i) {
    double* c_row = row(c, i, n);
    for (Index p = 0; p < k; ++p) {
      double const factor = transpose_a ? row(a, p, m)[i] : row(a, i, k)[p];
      double const* b_row = row(Values(op_b), p, n);
      for (Index j = 0; j < n; ++j) c_row[j] += factor * b_row[j];
    }
  }
}

} // namespace trainstone::reference
