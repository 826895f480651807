// Kernels that go through rows of activations: embedding, layer norm, residual, bias, GELU, dropout. Bounds hold for
// sums in any order: a sum of n terms is off by at most n roundings of the largest partial sum. Values are at most 1 in
// magnitude where nothing else is said.

#include "kernel_cases/cases.hpp"
#include "kernel_cases/plain_kernels.hpp"

#include "core/stored.hpp"
#include "kernels/bias_gelu.hpp"
#include "kernels/layernorm.hpp"
#include "kernels/reference/reference.hpp"
#include "kernels/residual.hpp"

#include <algorithm>

namespace trainstone {

namespace {

using Values = std::vector<std::vector<double>>;

void clear(std::vector<double>& values) { std::ranges::fill(values, 0.0); }

/// Makes the cases of one shape and type.
template <class T>
struct Rows {
  explicit Rows(BenchmarkShape const& shape)
      : rows(shape.batch.rows()),
        columns(shape.config.channels),
        sequence(shape.batch.sequence),
        config(shape.config) {}

  Index rows, columns, sequence;
  GptConfig config;
  double width = static_cast<double>(columns), height = static_cast<double>(rows);

  static BenchmarkTensor in(Index count, double scale = 1) { return {count, element_of(storage_of<T>()), scale}; }
  static BenchmarkTensor out(Index count, double error) {
    return {count, element_of(storage_of<T>()), 1, 0, stored_within(storage_of<T>(), error)};
  }
  static BenchmarkTensor statistics(Index count, double error) {
    return {count, Element::fp32, 1, 0, stored_within(Storage::fp32, error)};
  }
  static std::vector<std::string> variants() { return {"ours", "plain"}; }

  KernelCase embedding_forward() const {
    // sums of two multiples of 2^-6, at most 2
    return {"embedding_forward",
            variants(),
            {in(config.padded_vocab() * columns), in(config.context * columns), out(rows * columns, 0)},
            [r = *this](auto const& exec, std::size_t variant, BenchmarkMemory const& m) -> KernelCall {
              TokenMemory const tokens = in_memory(exec, some_tokens(r.rows, r.config.vocab));
              KernelCall const call =
                  call_of(variant, trainstone::embedding_forward<T>, plain::embedding_forward<T>, exec, tokens,
                          m.matrix<T>(0, r.columns), m.matrix<T>(1, r.columns), r.sequence, m.matrix<T>(2, r.columns));
              return [tokens, call] { call(); };
            },
            [r = *this](Values& v) {
              reference::embedding_forward(some_tokens(r.rows, r.config.vocab), v[0], v[1], r.sequence, v[2]);
            }};
  }

  KernelCase embedding_backward() const {
    return {"embedding_backward",
            variants(),
            {in(rows * columns), out(config.padded_vocab() * columns, 0), out(config.context * columns, 0)},
            [r = *this](ExecutionSpace const& exec, std::size_t variant, BenchmarkMemory const& m) -> KernelCall {
              std::vector<std::int32_t> const tokens = some_tokens(r.rows, r.config.vocab);
              std::vector<std::int32_t> order(tokens.size()), begin(tokens.size() + 1), token(tokens.size());
              build_token_buckets(tokens, r.config.vocab, order, begin, token);
              TokenMemory const a = in_memory(exec, order), b = in_memory(exec, begin), c = in_memory(exec, token);
              Matrix<T> const d_out = m.matrix<T>(0, r.columns), wte = m.matrix<T>(1, r.columns),
                              wpe = m.matrix<T>(2, r.columns);
              return [=, sequence = r.sequence] {
                TokenBuckets const buckets{a, b, c};
                if (variant == 0)
                  trainstone::embedding_backward<T, T>(exec, buckets, d_out, sequence, wte, wpe, Write::overwrite);
                else
                  plain::embedding_backward<T>(exec, buckets, d_out, sequence, wte, wpe);
              };
            },
            [r = *this](Values& v) {
              clear(v[2]);
              reference::embedding_backward(some_tokens(r.rows, r.config.vocab), v[0], r.sequence, v[1], v[2]);
            }};
  }

  /// Mean and 1 / deviation of values below 3 are off by C + 1 roundings and more. With as many values, spread evenly,
  /// 1 / deviation is below 3.5, so that y, below 12, is off by that many times its 12, and the mean's error times 3.5.
  double norm_error() const { return 32 * (width + 8) * unit_roundoff; }

  KernelCase layernorm_forward() const {
    return {"layernorm_forward",
            variants(),
            {in(rows * columns), in(columns), in(columns), out(rows * columns, norm_error()),
             statistics(rows, norm_error()), statistics(rows, norm_error())},
            [r = *this](ExecutionSpace const& exec, std::size_t variant, BenchmarkMemory const& m) {
              return call_of(variant, trainstone::layernorm_forward<T>, plain::layernorm_forward<T>, exec,
                             m.matrix<T>(0, r.columns), m.vector<T>(1), m.vector<T>(2), m.matrix<T>(3, r.columns),
                             m.vector<float>(4), m.vector<float>(5));
            },
            [](Values& v) { reference::layernorm_forward(v[0], v[1], v[2], v[3], v[4], v[5]); }};
  }

  KernelCase residual_layernorm_forward() const {
    // the sum of three multiples of 2^-6, at most 3, is stored exactly
    return {
        "residual_layernorm_forward",
        variants(),
        {in(rows * columns), in(rows * columns), in(columns), in(columns), in(columns), out(rows * columns, 0),
         out(rows * columns, norm_error()), statistics(rows, norm_error()), statistics(rows, norm_error())},
        [r = *this](ExecutionSpace const& exec, std::size_t variant, BenchmarkMemory const& m) {
          return call_of(variant, trainstone::residual_layernorm_forward<T>, plain::residual_layernorm_forward<T>, exec,
                         m.matrix<T>(0, r.columns), m.matrix<T>(1, r.columns), m.vector<T>(2), m.vector<T>(3),
                         m.vector<T>(4), m.matrix<T>(5, r.columns), m.matrix<T>(6, r.columns), m.vector<float>(7),
                         m.vector<float>(8));
        },
        [](Values& v) { reference::residual_layernorm_forward(v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[8]); }};
  }

  /// With statistics of any value, rstd being from 0.5 to 1.5: |norm| <= 3.
  KernelCase layernorm_backward() const {
    // d_x: means of C terms, at most 1 and 3, of which the second is multiplied with norm and rstd: at most 16.5 in all
    double const d_x_error = 16 * (width + 16) * unit_roundoff,
                 d_gamma_error = 3 * height * (height + 4) * unit_roundoff;
    BenchmarkTensor const of_mean{rows, Element::fp32}, of_rstd{rows, Element::fp32, 0.5, 1};
    return {"layernorm_backward",
            variants(),
            {in(rows * columns), in(rows * columns), in(columns), of_mean, of_rstd, out(rows * columns, d_x_error),
             out(columns, d_gamma_error), out(columns, 0)},
            [r = *this](ExecutionSpace const& exec, std::size_t variant, BenchmarkMemory const& m) -> KernelCall {
              Matrix<T> const d_y = m.matrix<T>(0, r.columns), x = m.matrix<T>(1, r.columns),
                              d_x = m.matrix<T>(5, r.columns);
              Vector<T> const gamma = m.vector<T>(2), d_gamma = m.vector<T>(6), d_beta = m.vector<T>(7);
              Vector<float> const mean = m.vector<float>(3), rstd = m.vector<float>(4);
              return [=] {
                if (variant == 0)
                  trainstone::layernorm_backward<T, T>(exec, d_y, x, gamma, mean, rstd, d_x, Write::add, d_gamma,
                                                       d_beta, Write::overwrite);
                else
                  plain::layernorm_backward<T>(exec, d_y, x, gamma, mean, rstd, d_x, d_gamma, d_beta);
              };
            },
            [](Values& v) {
              clear(v[6]);
              clear(v[7]);
              reference::layernorm_backward(v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7]);
            }};
  }

  KernelCase residual_forward() const {
    return {"residual_forward",
            variants(),
            {in(rows * columns), in(rows * columns), in(columns), out(rows * columns, 0)},
            [r = *this](ExecutionSpace const& exec, std::size_t variant, BenchmarkMemory const& m) {
              return call_of(variant, trainstone::residual_forward<T>, plain::residual_forward<T>, exec,
                             m.matrix<T>(0, r.columns), m.matrix<T>(1, r.columns), m.vector<T>(2),
                             m.matrix<T>(3, r.columns));
            },
            [](Values& v) { reference::residual_forward(v[0], v[1], v[2], v[3]); }};
  }

  KernelCase add_bias() const { // of q, k and v
    BenchmarkTensor x = out(rows * 3 * columns, 0);
    return {"add_bias",
            variants(),
            {in(3 * columns), x},
            [r = *this](ExecutionSpace const& exec, std::size_t variant, BenchmarkMemory const& m) {
              return call_of(variant, trainstone::add_bias<T>, plain::add_bias<T>, exec, m.vector<T>(0),
                             m.matrix<T>(1, 3 * r.columns));
            },
            [](Values& v) { reference::add_bias(v[0], v[1]); }};
  }

  KernelCase bias_gelu_forward() const {
    BenchmarkTensor x = out(rows * 4 * columns, 0), y = x;
    x.scale = 4;
    x.restored = true;
    // |x| <= 8: the exponential is off by 3 roundings and those of its argument; they matter only where it does
    y.bound = [](double value) {
      return stored_within(storage_of<T>(), unit_roundoff * (6 * std::abs(value) + 8))(value);
    };
    return {"bias_gelu_forward",
            variants(),
            {in(4 * columns, 4), x, y},
            [r = *this](ExecutionSpace const& exec, std::size_t variant, BenchmarkMemory const& m) {
              return call_of(variant, trainstone::bias_gelu_forward<T>, plain::bias_gelu_forward<T>, exec,
                             m.vector<T>(0), m.matrix<T>(1, 4 * r.columns), m.matrix<T>(2, 4 * r.columns));
            },
            [](Values& v) { reference::bias_gelu_forward(v[0], v[1], v[2]); }};
  }

  KernelCase gelu_backward() const {
    // 1 - tanh^2 has lost digits where it is multiplied with |x| u' / 2 <= 31: 4 roundings
    BenchmarkTensor d = out(rows * 4 * columns, 128 * unit_roundoff);
    d.restored = true;
    return {"gelu_backward",
            variants(),
            {in(rows * 4 * columns, 8), d},
            [r = *this](ExecutionSpace const& exec, std::size_t variant, BenchmarkMemory const& m) {
              return call_of(variant, trainstone::gelu_backward<T>, plain::gelu_backward<T>, exec,
                             m.matrix<T>(0, 4 * r.columns), m.matrix<T>(1, 4 * r.columns));
            },
            [](Values& v) { reference::gelu_backward(v[0], v[1]); }};
  }

  KernelCase bias_backward() const {
    return {"bias_backward",
            variants(),
            {in(rows * 4 * columns), out(4 * columns, 0)},
            [r = *this](ExecutionSpace const& exec, std::size_t variant, BenchmarkMemory const& m) -> KernelCall {
              Matrix<T> const d_y = m.matrix<T>(0, 4 * r.columns);
              Vector<T> const d_bias = m.vector<T>(1);
              return [=] {
                if (variant == 0)
                  trainstone::bias_backward<T, T>(exec, d_y, d_bias, Write::overwrite);
                else
                  plain::bias_backward<T>(exec, d_y, d_bias);
              };
            },
            [](Values& v) {
              clear(v[1]);
              reference::bias_backward(v[0], v[1]);
            }};
  }

  static Dropout drop() { return {.rate = 0.1, .seed = 5, .first_sample = 1000, .site = 4}; }

  std::vector<double> factors() const {
    std::vector<double> result(static_cast<std::size_t>(rows * columns));
    reference::dropout_factors({drop().rate, drop().seed, drop().first_sample, drop().site}, sequence, 0, columns,
                               result);
    return result;
  }

  KernelCase dropout_forward() const {
    // two roundings of at most 2 / 0.9, one of them the factor's
    BenchmarkTensor in_place = out(rows * columns, 6 * unit_roundoff);
    in_place.restored = true;
    return {"dropout_forward",
            variants(),
            {in(columns), in_place},
            [r = *this](ExecutionSpace const& exec, std::size_t variant, BenchmarkMemory const& m) -> KernelCall {
              Vector<T> const bias = m.vector<T>(0);
              Matrix<T> const x = m.matrix<T>(1, r.columns);
              return [=, sequence = r.sequence] {
                if (variant == 0)
                  trainstone::dropout_forward<T>(exec, drop(), sequence, bias, x, {});
                else
                  plain::dropout_forward<T>(exec, drop(), sequence, bias, x);
              };
            },
            [r = *this](Values& v) {
              reference::add_bias(v[0], v[1]);
              reference::dropout(r.factors(), v[1]);
            }};
  }

  KernelCase dropout_backward() const {
    return {"dropout_backward",
            variants(),
            {in(rows * columns), out(rows * columns, 3 * unit_roundoff)},
            [r = *this](ExecutionSpace const& exec, std::size_t variant, BenchmarkMemory const& m) -> KernelCall {
              Matrix<T> const d_y = m.matrix<T>(0, r.columns), d_x = m.matrix<T>(1, r.columns);
              return [=, sequence = r.sequence] {
                if (variant == 0)
                  trainstone::dropout_backward<T>(exec, drop(), sequence, {}, d_y, d_x);
                else
                  plain::dropout_backward<T>(exec, drop(), sequence, d_y, d_x);
              };
            },
            [r = *this](Values& v) {
              v[1] = v[0];
              reference::dropout(r.factors(), v[1]);
            }};
  }

  std::vector<KernelCase> all() const {
    return {embedding_forward(),  embedding_backward(), layernorm_forward(), residual_layernorm_forward(),
            layernorm_backward(), residual_forward(),   add_bias(),          bias_gelu_forward(),
            gelu_backward(),      bias_backward(),      dropout_forward(),   dropout_backward()};
  }
};

} // namespace

std::vector<KernelCase> row_cases(BenchmarkShape const& shape, Storage storage) {
  return storage == Storage::fp32 ? Rows<float>(shape).all() : Rows<bf16>(shape).all();
}

} // namespace trainstone
