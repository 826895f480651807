#include "kernel_cases/plain_kernels.hpp"

#include "core/random.hpp"
#include "core/types.hpp"
#include "kernels/common/instantiate.hpp"
#include "kernels/layernorm.hpp"

#include <cmath>

namespace trainstone::plain {

namespace {

auto over(ExecutionSpace const& exec, std::size_t count) {
  return Kokkos::RangePolicy<ExecutionSpace, Kokkos::IndexType<Index>>(exec, 0, static_cast<Index>(count));
}

template <class T>
KOKKOS_INLINE_FUNCTION void normalize_row(Matrix<T const> const& x, Vector<T const> const& gamma,
                                          Vector<T const> const& beta, Matrix<T> const& y, Vector<float> const& mean,
                                          Vector<float> const& rstd, Index n) {
  Index const columns = static_cast<Index>(x.extent(1));
  float sum = 0, squares = 0;
  for (Index c = 0; c < columns; ++c) sum += to_float(x(n, c));
  mean(n) = sum / static_cast<float>(columns);
  for (Index c = 0; c < columns; ++c) {
    float const deviation = to_float(x(n, c)) - mean(n);
    squares += deviation * deviation;
  }
  rstd(n) = 1.0F / Kokkos::sqrt(squares / static_cast<float>(columns) + layernorm_epsilon);
  for (Index c = 0; c < columns; ++c)
    y(n, c) = from_float<T>((to_float(x(n, c)) - mean(n)) * rstd(n) * to_float(gamma(c)) + to_float(beta(c)));
}

/// What dropout multiplies four neighbours with, which share random numbers.
struct Mask {
  Dropout dropout;
  Index sequence;

  struct Factors {
    float of[4];
  };
  KOKKOS_INLINE_FUNCTION Factors factors(Index n, Index block) const {
    std::uint64_t const sample = dropout.first_sample + static_cast<std::uint64_t>(n / sequence);
    std::uint64_t const upper = static_cast<std::uint64_t>(n % sequence) | sample >> 32 << 20;
    RandomBlock const random =
        random_block(dropout.seed, RandomStream::dropout, upper << 32 | static_cast<std::uint64_t>(block),
                     dropout.site | (sample & 0xFFFFFFFFU) << 24);
    Factors result{};
    for (int j = 0; j < 4; ++j) {
      bool const kept = static_cast<double>(random.words[j]) >= dropout.rate * 0x1p32;
      result.of[j] = kept ? static_cast<float>(1.0 / (1.0 - dropout.rate)) : 0.0F;
    }
    return result;
  }

  /// body(c, its factor) for the columns of row n.
  template <class Body>
  KOKKOS_INLINE_FUNCTION void over_row(Index n, Index columns, Body const& body) const {
    for (Index block = 0; 4 * block < columns; ++block) {
      Factors const of_block = factors(n, block);
      for (Index c = 4 * block; c < columns && c < 4 * block + 4; ++c) body(c, of_block.of[c % 4]);
    }
  }
};

} // namespace

// --- embedding, layer norm -----------------------------------------------------------------------------------------

template <class T>
void embedding_forward(ExecutionSpace const& exec, Vector<std::int32_t const> tokens, Matrix<T const> wte,
                       Matrix<T const> wpe, Index sequence, Matrix<T> out) {
  Kokkos::parallel_for(
      "trainstone::plain::embedding_forward", over(exec, out.extent(0)), KOKKOS_LAMBDA(Index n) {
        for (std::size_t c = 0; c < out.extent(1); ++c)
          out(n, c) = from_float<T>(to_float(wte(tokens(n), c)) + to_float(wpe(n % sequence, c)));
      });
}

template <class T>
void embedding_backward(ExecutionSpace const& exec, TokenBuckets const& buckets, Matrix<T const> d_out, Index sequence,
                        Matrix<T> d_wte, Matrix<T> d_wpe) {
  Kokkos::parallel_for(
      "trainstone::plain::embedding_backward_tokens", over(exec, d_out.extent(0)), KOKKOS_LAMBDA(Index bucket) {
        if (buckets.begin(bucket) == buckets.begin(bucket + 1)) return;
        std::int32_t const token = buckets.token(bucket);
        for (std::size_t c = 0; c < d_out.extent(1); ++c) {
          float sum = to_float(d_wte(token, c));
          for (std::int32_t i = buckets.begin(bucket); i < buckets.begin(bucket + 1); ++i)
            sum += to_float(d_out(buckets.order(i), c));
          d_wte(token, c) = from_float<T>(sum);
        }
      });
  Index const rows = static_cast<Index>(d_out.extent(0));
  Kokkos::parallel_for(
      "trainstone::plain::embedding_backward_positions", over(exec, d_wpe.extent(0)), KOKKOS_LAMBDA(Index position) {
        for (std::size_t c = 0; c < d_out.extent(1); ++c) {
          float sum = 0;
          if (position < sequence)
            for (Index n = position; n < rows; n += sequence) sum += to_float(d_out(n, c));
          d_wpe(position, c) = from_float<T>(sum);
        }
      });
}

template <class T>
void layernorm_forward(ExecutionSpace const& exec, Matrix<T const> x, Vector<T const> gamma, Vector<T const> beta,
                       Matrix<T> y, Vector<float> mean, Vector<float> rstd) {
  Kokkos::parallel_for(
      "trainstone::plain::layernorm_forward", over(exec, x.extent(0)),
      KOKKOS_LAMBDA(Index n) { normalize_row<T>(x, gamma, beta, y, mean, rstd, n); });
}

template <class T>
void residual_layernorm_forward(ExecutionSpace const& exec, Matrix<T const> x, Matrix<T const> branch,
                                Vector<T const> branch_bias, Vector<T const> gamma, Vector<T const> beta, Matrix<T> sum,
                                Matrix<T> y, Vector<float> mean, Vector<float> rstd) {
  Kokkos::parallel_for(
      "trainstone::plain::residual_layernorm_forward", over(exec, x.extent(0)), KOKKOS_LAMBDA(Index n) {
        for (std::size_t c = 0; c < x.extent(1); ++c)
          sum(n, c) = from_float<T>(to_float(x(n, c)) + to_float(branch(n, c)) + to_float(branch_bias(c)));
        normalize_row<T>(sum, gamma, beta, y, mean, rstd, n);
      });
}

template <class T>
void layernorm_backward(ExecutionSpace const& exec, Matrix<T const> d_y, Matrix<T const> x, Vector<T const> gamma,
                        Vector<float const> mean, Vector<float const> rstd, Matrix<T> d_x, Vector<T> d_gamma,
                        Vector<T> d_beta) {
  std::size_t const rows = x.extent(0), columns = x.extent(1);
  Kokkos::parallel_for(
      "trainstone::plain::layernorm_backward", over(exec, rows), KOKKOS_LAMBDA(Index n) {
        float sum_d = 0, sum_d_norm = 0;
        for (std::size_t c = 0; c < columns; ++c) {
          float const d_norm = to_float(d_y(n, c)) * to_float(gamma(c));
          sum_d += d_norm;
          sum_d_norm += d_norm * ((to_float(x(n, c)) - mean(n)) * rstd(n));
        }
        float const count = static_cast<float>(columns);
        for (std::size_t c = 0; c < columns; ++c) {
          float const norm = (to_float(x(n, c)) - mean(n)) * rstd(n);
          float const d_norm = to_float(d_y(n, c)) * to_float(gamma(c));
          float const change = rstd(n) * (d_norm - sum_d / count - norm * (sum_d_norm / count));
          d_x(n, c) = from_float<T>(to_float(d_x(n, c)) + change);
        }
      });
  Kokkos::parallel_for(
      "trainstone::plain::layernorm_backward_parameters", over(exec, columns), KOKKOS_LAMBDA(Index c) {
        float of_gamma = 0, of_beta = 0;
        for (std::size_t n = 0; n < rows; ++n) {
          of_gamma += to_float(d_y(n, c)) * ((to_float(x(n, c)) - mean(n)) * rstd(n));
          of_beta += to_float(d_y(n, c));
        }
        d_gamma(c) = from_float<T>(of_gamma);
        d_beta(c) = from_float<T>(of_beta);
      });
}

// --- element by element --------------------------------------------------------------------------------------------

template <class T>
void residual_forward(ExecutionSpace const& exec, Matrix<T const> x, Matrix<T const> branch,
                      Vector<T const> branch_bias, Matrix<T> sum) {
  Kokkos::parallel_for(
      "trainstone::plain::residual_forward", over(exec, x.extent(0)), KOKKOS_LAMBDA(Index n) {
        for (std::size_t c = 0; c < x.extent(1); ++c)
          sum(n, c) = from_float<T>(to_float(x(n, c)) + to_float(branch(n, c)) + to_float(branch_bias(c)));
      });
}

template <class T>
void add_bias(ExecutionSpace const& exec, Vector<T const> bias, Matrix<T> x) {
  Kokkos::parallel_for(
      "trainstone::plain::add_bias", over(exec, x.extent(0)), KOKKOS_LAMBDA(Index n) {
        for (std::size_t c = 0; c < x.extent(1); ++c) x(n, c) = from_float<T>(to_float(x(n, c)) + to_float(bias(c)));
      });
}

constexpr float root_of_2_by_pi = 0.7978845608F, cubic = 0.044715F;

template <class T>
void bias_gelu_forward(ExecutionSpace const& exec, Vector<T const> bias, Matrix<T> x, Matrix<T> y) {
  Kokkos::parallel_for(
      "trainstone::plain::bias_gelu_forward", over(exec, x.extent(0)), KOKKOS_LAMBDA(Index n) {
        for (std::size_t c = 0; c < x.extent(1); ++c) {
          x(n, c) = from_float<T>(to_float(x(n, c)) + to_float(bias(c)));
          float const value = to_float(x(n, c));
          float const argument = root_of_2_by_pi * (value + cubic * value * value * value);
          y(n, c) = from_float<T>(0.5F * value * (1.0F + Kokkos::tanh(argument)));
        }
      });
}

template <class T>
void gelu_backward(ExecutionSpace const& exec, Matrix<T const> x, Matrix<T> d_y_in_d_x_out) {
  Kokkos::parallel_for(
      "trainstone::plain::gelu_backward", over(exec, x.extent(0)), KOKKOS_LAMBDA(Index n) {
        for (std::size_t c = 0; c < x.extent(1); ++c) {
          float const value = to_float(x(n, c));
          float const tangent = Kokkos::tanh(root_of_2_by_pi * (value + cubic * value * value * value));
          float const inner = root_of_2_by_pi * (1.0F + 3.0F * cubic * value * value);
          float const slope = 0.5F * (1.0F + tangent) + 0.5F * value * (1.0F - tangent * tangent) * inner;
          d_y_in_d_x_out(n, c) = from_float<T>(to_float(d_y_in_d_x_out(n, c)) * slope);
        }
      });
}

template <class T>
void bias_backward(ExecutionSpace const& exec, Matrix<T const> d_y, Vector<T> d_bias) {
  Kokkos::parallel_for(
      "trainstone::plain::bias_backward", over(exec, d_y.extent(1)), KOKKOS_LAMBDA(Index c) {
        float sum = 0;
        for (std::size_t n = 0; n < d_y.extent(0); ++n) sum += to_float(d_y(n, c));
        d_bias(c) = from_float<T>(sum);
      });
}

template <class T>
void dropout_forward(ExecutionSpace const& exec, Dropout const& dropout, Index sequence, Vector<T const> bias,
                     Matrix<T> x) {
  Mask const mask{dropout, sequence};
  Kokkos::parallel_for(
      "trainstone::plain::dropout_forward", over(exec, x.extent(0)), KOKKOS_LAMBDA(Index n) {
        mask.over_row(n, static_cast<Index>(x.extent(1)), [&](Index c, float factor) {
          x(n, c) = from_float<T>((to_float(x(n, c)) + to_float(bias(c))) * factor);
        });
      });
}

template <class T>
void dropout_backward(ExecutionSpace const& exec, Dropout const& dropout, Index sequence, Matrix<T const> d_y,
                      Matrix<T> d_x) {
  Mask const mask{dropout, sequence};
  Kokkos::parallel_for(
      "trainstone::plain::dropout_backward", over(exec, d_x.extent(0)), KOKKOS_LAMBDA(Index n) {
        mask.over_row(n, static_cast<Index>(d_x.extent(1)),
                      [&](Index c, float factor) { d_x(n, c) = from_float<T>(to_float(d_y(n, c)) * factor); });
      });
}

#define TRAINSTONE_INSTANTIATE(T)                                                                                      \
  template void embedding_forward<T>(ExecutionSpace const&, Vector<std::int32_t const>, Matrix<T const>,               \
                                     Matrix<T const>, Index, Matrix<T>);                                               \
  template void embedding_backward<T>(ExecutionSpace const&, TokenBuckets const&, Matrix<T const>, Index, Matrix<T>,   \
                                      Matrix<T>);                                                                      \
  template void layernorm_forward<T>(ExecutionSpace const&, Matrix<T const>, Vector<T const>, Vector<T const>,         \
                                     Matrix<T>, Vector<float>, Vector<float>);                                         \
  template void residual_layernorm_forward<T>(ExecutionSpace const&, Matrix<T const>, Matrix<T const>,                 \
                                              Vector<T const>, Vector<T const>, Vector<T const>, Matrix<T>, Matrix<T>, \
                                              Vector<float>, Vector<float>);                                           \
  template void layernorm_backward<T>(ExecutionSpace const&, Matrix<T const>, Matrix<T const>, Vector<T const>,        \
                                      Vector<float const>, Vector<float const>, Matrix<T>, Vector<T>, Vector<T>);      \
  template void residual_forward<T>(ExecutionSpace const&, Matrix<T const>, Matrix<T const>, Vector<T const>,          \
                                    Matrix<T>);                                                                        \
  template void add_bias<T>(ExecutionSpace const&, Vector<T const>, Matrix<T>);                                        \
  template void bias_gelu_forward<T>(ExecutionSpace const&, Vector<T const>, Matrix<T>, Matrix<T>);                    \
  template void gelu_backward<T>(ExecutionSpace const&, Matrix<T const>, Matrix<T>);                                   \
  template void bias_backward<T>(ExecutionSpace const&, Matrix<T const>, Vector<T>);                                   \
  template void dropout_forward<T>(ExecutionSpace const&, Dropout const&, Index, Vector<T const>, Matrix<T>);          \
  template void dropout_backward<T>(ExecutionSpace const&, Dropout const&, Index, Matrix<T const>, Matrix<T>);
TRAINSTONE_FOR_EACH_STORAGE(TRAINSTONE_INSTANTIATE)

} // namespace trainstone::plain
