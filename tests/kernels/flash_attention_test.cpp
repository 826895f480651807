#include "kernels/attention/flash_attention.hpp"

#include "core/error.hpp"
#include "core/launch.hpp"
#include "kernels/dropout_mask.hpp"
#include "kernels/gemm/tile_product.hpp"
#include "kernels/reference/reference.hpp"
#include "support/compare.hpp"
#include "support/instances.hpp"
#include "support/views.hpp"

#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

using namespace trainstone;
using namespace trainstone::test;

namespace {

using Shape = reference::AttentionShape; // batch, sequence, heads, head_size

/// Multiples of 2^-7 in [-size, size]: the same values in all storage types while size <= 1.
std::vector<float> coarse_values(Index count, std::uint64_t seed, double size) {
  std::vector<float> values = random_values(count, seed, -1.0, 1.0);
  for (float& value : values) value = std::round(value * 128.0F) / 128.0F * static_cast<float>(size);
  return values;
}

struct Problem {
  Shape shape;
  Dropout dropout;
  std::vector<float> qkv, d_out;

  explicit Problem(Shape const& s, Dropout const& drop = {}, double size = 1.0)
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

struct Result {
  std::vector<double> log_sum_exp, out, d_qkv;
};

template <class T>
Result compute(ExecutionSpace const& exec, Problem const& problem) {
  Shape const& s = problem.shape;
  Index const rows = problem.rows(), channels = problem.channels();
  DeviceTensor<T> const qkv(stored<T>(problem.qkv)), d_out(stored<T>(problem.d_out)),
      out(rows * channels, from_float<T>(9.0F)), d_qkv(rows * 3 * channels, from_float<T>(9.0F));
  DeviceTensor<float> const log_sum_exp(rows * s.heads, 9.0F);
  Matrix<T const> const qkv_rows = qkv.matrix(rows, 3 * channels);
  Matrix<T> const out_rows = out.matrix(rows, channels);
  flash_attention_forward<T>(exec, qkv_rows, s.batch, s.heads, problem.dropout, log_sum_exp.vector(), out_rows);
  flash_attention_backward<T>(exec, qkv_rows, s.batch, s.heads, problem.dropout, log_sum_exp.vector(), out_rows,
                              d_out.matrix(rows, channels), d_qkv.matrix(rows, 3 * channels));
  return {widened(log_sum_exp.values()), widened(out.values()), widened(d_qkv.values())};
}

/// In fp64, for comparison with all storage types.
struct Expected : Result {
  double column = 0; ///< the largest norm of what all queries give one key
  double factor = 1; ///< of a probability that is kept

  explicit Expected(Problem const& problem) {
    Shape const& s = problem.shape;
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
template <class T>
std::string differences(Problem const& problem, Expected const& expected) {
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
  double const out_error = factor * (weight_error + u * std::sqrt(sequence));
  // Probabilities are computed again from score and log_sum_exp. d_p and its mean are sums of n products, <= 2 factor
  // sqrt(n); the mean is made of the stored `out`, whose n errors have random signs. All of it is divided by the root
  // and weighted with probabilities: along a query they sum to 1, along a key errors of random signs add up to
  // `column`.
  double const p_error = score_error + log_error + 3 * u + u * std::sqrt(sequence);
  double const d_error =
      std::max(1.0, expected.column) * (4 * factor * (p_error + u * root) + storing_error<T>(factor) + out_error);
  Result const actual = compute<T>(ExecutionSpace(), problem);
  return mismatches<double, double>(actual.log_sum_exp, expected.log_sum_exp, log_error) +
         mismatches<double, double>(actual.out, expected.out, stored_within<T>(out_error)) +
         mismatches<double, double>(actual.d_qkv, expected.d_qkv, stored_within<T>(d_error));
}

/// Sequences around one and several tiles; head sizes around patches.
void check_all_shapes(Dropout const& dropout) {
  for (Index sequence : {1, 2, 17, 64, 127, 256, 1000}) {
    for (Index head_size : {1, 3, 16, 64, 80, 128}) {
      Problem const problem({sequence < 64 ? 2 : 1, sequence, sequence < 256 ? 2 : 1, head_size}, dropout);
      Expected const expected(problem);
      INFO(fmt::format("T {} HS {}", sequence, head_size));
      CHECK(differences<float>(problem, expected) == "");
      CHECK(differences<bf16>(problem, expected) == "");
      CHECK(differences<fp16>(problem, expected) == "");
    }
  }
}

bool all_finite(std::vector<double> const& values) {
  return std::ranges::all_of(values, [](double value) { return std::isfinite(value); });
}

Dropout const some_dropout{.rate = 0.2, .seed = 3, .first_sample = 5, .site = 7};

} // namespace

TEST_CASE("flash attention forward and backward equal the reference") { check_all_shapes({}); }

TEST_CASE("flash attention with dropout equals the reference with the mask applied") { check_all_shapes(some_dropout); }

TEST_CASE("flash attention takes no sequences and empty ones") {
  for (Shape const& shape : {Shape{0, 4, 2, 3}, Shape{2, 0, 2, 3}, Shape{0, 0, 1, 1}})
    CHECK(compute<float>(ExecutionSpace(), Problem(shape, some_dropout)).out.empty());
}

TEMPLATE_LIST_TEST_CASE("flash attention survives scores far beyond the range of the exponential", "", StorageTypes) {
  Problem const problem({1, 131, 2, 8}, {}, 60.0);
  Result const actual = compute<TestType>(ExecutionSpace(), problem);
  // a mean of values <= 60; scores of up to 60^2 sqrt(8) move weights by their last bits, bf16 rounds
  CHECK(std::ranges::all_of(actual.out, [](double value) { return std::abs(value) <= 60.0 * (1 + 0x1p-7); }));
  CHECK(all_finite(actual.log_sum_exp));
  CHECK(all_finite(actual.d_qkv));
}

TEST_CASE("no position of flash attention sees later ones") {
  Problem problem({1, 150, 2, 7}, some_dropout);
  Index const changed = 101; // keys and values from here on
  auto const kept = changed * problem.channels();
  std::fill(problem.d_out.begin() + kept, problem.d_out.end(), 0.0F);
  Result const before = compute<float>(ExecutionSpace(), problem);
  for (Index t = changed; t < 150; ++t)
    for (Index c = problem.channels(); c < 3 * problem.channels(); ++c)
      problem.qkv[static_cast<std::size_t>(t * 3 * problem.channels() + c)] += 1.5F;
  Result const after = compute<float>(ExecutionSpace(), problem);
  CHECK(std::equal(before.out.begin(), before.out.begin() + kept, after.out.begin()));
  CHECK(std::equal(before.d_qkv.begin(), before.d_qkv.begin() + 3 * kept, after.d_qkv.begin()));
  CHECK(before.out.back() != after.out.back());
  // only queries before them have a gradient
  CHECK(std::all_of(after.d_qkv.begin() + 3 * kept, after.d_qkv.end(), [](double value) { return value == 0; }));
}

TEST_CASE("flash attention gives the same bits in every run and for any number of threads") {
  Problem const problem({3, 137, 3, 13}, some_dropout);
  Result const first = compute<float>(ExecutionSpace(), problem);
  for (ExecutionSpace const& exec : {ExecutionSpace(), smaller_instance()}) {
    Result const again = compute<float>(exec, problem);
    CHECK(first.log_sum_exp == again.log_sum_exp);
    CHECK(first.out == again.out);
    CHECK(first.d_qkv == again.d_qkv);
  }
}

TEMPLATE_LIST_TEST_CASE("flash attention backward gives the same bits with a team per head and per tile", "",
                        StorageTypes) {
  using T = TestType;
  ExecutionSpace const exec;
  for (Index const sequence : {0, 1, 15, 16, 64, 65, 137, 200}) {
    Problem const problem({2, sequence, 3, 13}, some_dropout);
    Index const rows = problem.rows(), channels = problem.channels();
    DeviceTensor<T> const qkv(stored<T>(problem.qkv)), d_out(stored<T>(problem.d_out)), out(rows * channels, T{});
    DeviceTensor<float> const log_sum_exp(rows * 3, 0.0F);
    Matrix<T const> const qkv_rows = qkv.matrix(rows, 3 * channels);
    flash_attention_forward<T>(exec, qkv_rows, 2, 3, some_dropout, log_sum_exp.vector(), out.matrix(rows, channels));
    auto const gradient = [&](bool by_tiles) {
      DeviceTensor<T> const d_qkv(rows * 3 * channels, from_float<T>(9.0F));
      Impl::flash_attention_backward<T>(exec, qkv_rows, 2, 3, some_dropout, log_sum_exp.vector(),
                                        out.matrix(rows, channels), d_out.matrix(rows, channels),
                                        d_qkv.matrix(rows, 3 * channels), by_tiles);
      return widened(d_qkv.values());
    };
    INFO("T " << sequence);
    CHECK(gradient(true) == gradient(false));
  }
}

TEST_CASE("flash attention gives a sequence the same bits in any batch") {
  Problem const all({3, 70, 2, 9}, some_dropout);
  Result const together = compute<float>(ExecutionSpace(), all);
  for (Index b = 0; b < 3; ++b) {
    Problem one({1, 70, 2, 9}, some_dropout);
    one.dropout.first_sample += static_cast<std::uint64_t>(b);
    auto const size = std::ssize(one.d_out);
    std::copy_n(all.qkv.begin() + 3 * b * size, 3 * size, one.qkv.begin());
    std::copy_n(all.d_out.begin() + b * size, size, one.d_out.begin());
    Result const alone = compute<float>(ExecutionSpace(), one);
    CHECK(std::equal(alone.out.begin(), alone.out.end(), together.out.begin() + b * size));
    CHECK(std::equal(alone.d_qkv.begin(), alone.d_qkv.end(), together.d_qkv.begin() + 3 * b * size));
  }
}

TEST_CASE("flash attention stays finite where all keys of a query are dropped") {
  Problem const problem({1, 70, 1, 16}, {.rate = 0.99, .seed = 1});
  Result const actual = compute<float>(ExecutionSpace(), problem);
  CHECK(std::all_of(actual.out.begin(), actual.out.begin() + 16, [](double value) { return value == 0; }));
  CHECK(all_finite(actual.log_sum_exp));
  CHECK(all_finite(actual.d_qkv));
  CHECK(differences<float>(problem, Expected(problem)) == "");
}

TEST_CASE("flash attention counts the FLOPs of the tiles that run") {
  // every tile of keys, and the queries from its first key on
  std::uint64_t pairs = 0;
  for (std::uint64_t key = 0; key < 150; ++key) pairs += 150 - key / Impl::Tiles::keys * Impl::Tiles::keys;
  // B NH HS, 2 FLOP per term: products q k, p v; backward these scores again and four gradients; on devices scores and
  // their gradients twice
  std::uint64_t const backward = host_reaches_memory ? 5 : 7;
  std::uint64_t const product = 2 * 2 * 3 * 4 * pairs;
  CHECK(flash_attention_forward_flops(2, 150, 3, 4) == 2 * product);
  CHECK(flash_attention_backward_flops(2, 150, 3, 4) == backward * product);
  CHECK(flash_attention_forward_flops(1, 5, 1, 3) == 4 * 25 * 3); // the masked part of a tile runs, too
  std::uint64_t const before = counters().flops[Phase::attention];
  compute<float>(ExecutionSpace(), Problem({2, 150, 3, 4}));
  CHECK(counters().flops[Phase::attention] - before == (2 + backward) * product);
}

TEST_CASE("flash attention refuses shapes that do not fit together") {
  ExecutionSpace const exec;
  DeviceTensor<float> const memory(1000, 0.0F);
  struct Sizes {
    Index batch = 1, heads = 2, rows = 5, columns = 18, kept = 10;
  };
  auto const forward = [&](Sizes const& s) {
    flash_attention_forward<float>(exec, memory.matrix(s.rows, s.columns), s.batch, s.heads, {},
                                   Vector<float>(memory.vector().data(), static_cast<std::size_t>(s.kept)),
                                   memory.matrix(5, 6));
  };
  auto const backward = [&](Index d_out_rows, Index d_qkv_columns) {
    flash_attention_backward<float>(exec, memory.matrix(5, 18), 1, 2, {}, Vector<float>(memory.vector().data(), 10),
                                    memory.matrix(5, 6), memory.matrix(d_out_rows, 6), memory.matrix(5, d_qkv_columns));
  };
  CHECK_THROWS_AS(forward({.columns = 17}), Error);
  CHECK_THROWS_AS(forward({.heads = 4, .kept = 20}), Error);
  CHECK_THROWS_AS(forward({.rows = 6}), Error);
  CHECK_THROWS_AS(forward({.batch = 2}), Error);
  CHECK_THROWS_AS(forward({.batch = 0}), Error);
  CHECK_THROWS_AS(forward({.kept = 9}), Error);
  CHECK_THROWS_AS(backward(4, 18), Error);
  CHECK_THROWS_AS(backward(5, 17), Error);
  auto const drop_in_heads = [&](Index heads) {
    flash_attention_forward<float>(exec, memory.matrix(0, 3 * heads), 0, heads, some_dropout, {},
                                   memory.matrix(0, heads));
  };
  CHECK_NOTHROW(drop_in_heads(1 << 14));
  CHECK_THROWS_AS(drop_in_heads((1 << 14) + 1), Error); // a mask tells no more apart
}
