#include "kernels/attention/attention.hpp"

#include "core/error.hpp"
#include "core/launch.hpp"
#include "kernels/reference/reference.hpp"
#include "support/compare.hpp"
#include "support/instances.hpp"
#include "support/views.hpp"

#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cmath>

using namespace trainstone;
using namespace trainstone::test;

namespace {

using Shape = reference::AttentionShape; // batch, sequence, heads, head_size

// sequences around tiles of 16 (devices) and 64 queries and around patches of them; odd head sizes
Shape const all_shapes[] = {{1, 1, 1, 1},   {2, 3, 2, 5},   {1, 16, 3, 12}, {3, 17, 1, 16},
                            {1, 37, 2, 64}, {2, 64, 1, 32}, {0, 4, 2, 3},   {1, 66, 1, 300},
                            {1, 97, 2, 40}, {1, 128, 1, 8}, {1, 131, 1, 13}};

template <class T>
struct Problem {
  Shape shape;
  std::vector<T> qkv, d_out;

  explicit Problem(Shape const& s, double size = 1.0)
      : shape(s),
        qkv(stored<T>(random_values(rows() * 3 * channels(), 1, -size, size))),
        d_out(stored<T>(random_values(rows() * channels(), 2, -1.0, 1.0))) {}
  Index rows() const { return shape.batch * shape.sequence; }
  Index channels() const { return shape.heads * shape.head_size; }
  Index pairs() const { return shape.batch * shape.heads * shape.sequence * shape.sequence; }
};

struct Result {
  std::vector<double> probabilities, out, d_qkv;
};

enum class Masks { recomputed, stored };

template <class T>
Result compute(ExecutionSpace const& exec, Problem<T> const& problem, Dropout const& dropout = {},
               Masks masks = Masks::recomputed) {
  Shape const& s = problem.shape;
  DeviceTensor<MaskByte> const mask_bytes(problem.pairs(), MaskByte{9});
  Tensor4<MaskByte> mask;
  if (masks == Masks::stored) mask = mask_bytes.tensor(s.batch, s.heads, s.sequence, s.sequence);
  DeviceTensor<T> const qkv(problem.qkv), d_out(problem.d_out), probabilities(problem.pairs(), from_float<T>(9.0F)),
      out(problem.rows() * problem.channels(), from_float<T>(9.0F)),
      d_qkv(problem.rows() * 3 * problem.channels(), from_float<T>(9.0F));
  Tensor4<T> const p = probabilities.tensor(s.batch, s.heads, s.sequence, s.sequence);
  Matrix<T> const qkv_rows = qkv.matrix(problem.rows(), 3 * problem.channels());
  attention_forward<T>(exec, qkv_rows, s.heads, p, out.matrix(problem.rows(), problem.channels()), dropout, mask);
  attention_backward<T>(exec, qkv_rows, p, d_out.matrix(problem.rows(), problem.channels()),
                        d_qkv.matrix(problem.rows(), 3 * problem.channels()), dropout, mask);
  return {widened(probabilities.values()), widened(out.values()), widened(d_qkv.values())};
}

/// The reference's factors, (B, NH, T, T).
std::vector<double> factors_of(Shape const& s, Dropout const& dropout) {
  std::vector<double> factors(static_cast<std::size_t>(s.batch * s.heads * s.sequence * s.sequence));
  for (Index i = 0; i < s.batch * s.heads; ++i)
    reference::dropout_factors(
        {dropout.rate, dropout.seed, dropout.first_sample + static_cast<std::uint64_t>(i / s.heads), dropout.site},
        s.sequence, i % s.heads, s.sequence,
        std::span(factors).subspan(static_cast<std::size_t>(i * s.sequence * s.sequence),
                                   static_cast<std::size_t>(s.sequence * s.sequence)));
  return factors;
}

Dropout const typical_dropout{.rate = 0.3, .seed = 5, .first_sample = 1000, .site = 4};

/// Attention as plain loops that count the FLOPs of their products as they go: a multiplication and an addition each.
struct CountedLoops {
  Shape shape;
  std::vector<double> const& qkv;
  std::vector<double> const& d_out;
  std::vector<double> out = std::vector<double>(d_out.size(), 0), d_qkv = std::vector<double>(qkv.size(), 0);
  std::uint64_t forward = 0, backward = 0;

  void run() {
    for (Index sequence = 0; sequence < shape.batch; ++sequence)
      for (Index head = 0; head < shape.heads; ++head)
        for (Index row = 0; row < shape.sequence; ++row) run_row(sequence, head, row);
  }

private:
  enum Part { q, k, v };

  static void add(double& sum, double a, double b, std::uint64_t& flops) {
    sum += a * b;
    flops += 2;
  }
  std::size_t at(Index row, Index columns, Index column, Index i) const {
    return static_cast<std::size_t>((row * columns + column) * shape.heads * shape.head_size + i);
  }

  /// Row `row` of a head, which sees the rows up to its own.
  void run_row(Index sequence, Index head, Index row) {
    Index const first = sequence * shape.sequence, begin = head * shape.head_size;
    auto const of = [&](Part part, Index r, Index i) { return at(first + r, 3, part, begin + i); };
    auto const of_out = [&](Index i) { return at(first + row, 1, 0, begin + i); };
    std::vector<double> weights(static_cast<std::size_t>(row + 1), 0), d_weights(weights.size(), 0);
    double const scale = 1 / std::sqrt(static_cast<double>(shape.head_size));
    auto const for_all = [&](auto const& body) {
      for (Index seen = 0; seen <= row; ++seen)
        for (Index i = 0; i < shape.head_size; ++i) body(static_cast<std::size_t>(seen), seen, i);
    };
    for_all(
        [&](std::size_t n, Index seen, Index i) { add(weights[n], qkv[of(q, row, i)], qkv[of(k, seen, i)], forward); });
    double sum = 0, mean = 0;
    for (double& weight : weights) sum += weight = std::exp(scale * weight);
    for (double& weight : weights) weight /= sum;
    for_all([&](std::size_t n, Index seen, Index i) { add(out[of_out(i)], weights[n], qkv[of(v, seen, i)], forward); });
    for_all([&](std::size_t n, Index seen, Index i) {
      add(d_weights[n], d_out[of_out(i)], qkv[of(v, seen, i)], backward);
      add(d_qkv[of(v, seen, i)], weights[n], d_out[of_out(i)], backward);
    });
    for (std::size_t n = 0; n < weights.size(); ++n) mean += weights[n] * d_weights[n];
    for_all([&](std::size_t n, Index seen, Index i) {
      double const d_score = scale * weights[n] * (d_weights[n] - mean);
      add(d_qkv[of(q, row, i)], d_score, qkv[of(k, seen, i)], backward);
      add(d_qkv[of(k, seen, i)], d_score, qkv[of(q, row, i)], backward);
    });
  }
};

} // namespace

TEMPLATE_LIST_TEST_CASE("attention forward and backward equal the reference, with dropout and without", "",
                        StorageTypes) {
  using T = TestType;
  for (Dropout const& dropout : {Dropout{}, typical_dropout}) {
    for (Shape const& s : all_shapes) {
      Problem<T> const problem(s);
      Result const actual = compute(ExecutionSpace(), problem, dropout);
      std::vector<double> probabilities(actual.probabilities.size()), out(actual.out.size()),
          d_qkv(actual.d_qkv.size());
      std::vector<double> const factors = factors_of(s, dropout);
      double const scale = 1 / (1 - dropout.rate); // of weights, and of what passes through them
      reference::attention_forward(s, widened(problem.qkv), probabilities, out, factors);

      // |q|, |k|, |v|, |d_out| <= 1. A score is a sum of HS products, at most sqrt(HS) after scaling: error
      // u sqrt(HS) sqrt(HS); the exponential and the normalisation add a few u, relative to p <= 1.
      double const head_size = static_cast<double>(s.head_size), sequence = static_cast<double>(s.sequence);
      double const p_error = roundoff * (2 * head_size + 8);
      CHECK(mismatches<double, double>(actual.probabilities, probabilities, stored_within<T>(p_error)) == "");
      // out is a weighted mean of values <= 1: the error of the weights, and of a sum of T terms. Storing moves a row's
      // weights by as much as one of its sum 1, and by what the smallest number of T terms comes to.
      double const out_error = scale * (p_error + roundoff * std::sqrt(sequence) + storing_error<T>(1 + p_error) +
                                        sequence * storing_error<T>(0));
      CHECK(mismatches<double, double>(actual.out, out, stored_within<T>(out_error)) == "");
      // The gradient at the probabilities that forward stored. d_p <= HS with error u HS sqrt(HS); a row of d_scores
      // sums to at most 2 HS / sqrt(HS) in absolute value, so d_q has HS sqrt(HS) u from d_p and the relative error of
      // p and d_p; columns (d_k, d_v) add up to T such terms. Sums over tiles stay in fp32: stored once.
      reference::attention_backward(s, widened(problem.qkv), actual.probabilities, widened(problem.d_out), d_qkv,
                                    factors);
      double const d_error = scale * 2 * std::sqrt(head_size) * (p_error + roundoff * (std::sqrt(head_size) + 8));
      CHECK(mismatches<double, double>(actual.d_qkv, d_qkv, stored_within<T>(d_error * std::sqrt(sequence))) == "");
    }
  }
}

TEST_CASE("attention drops by the same masks whether they are stored or recomputed") {
  Problem<float> const problem({2, 77, 3, 13});
  Result const recomputed = compute(ExecutionSpace(), problem, typical_dropout, Masks::recomputed);
  Result const stored = compute(ExecutionSpace(), problem, typical_dropout, Masks::stored);
  CHECK(recomputed.out == stored.out);
  CHECK(recomputed.d_qkv == stored.d_qkv);
  CHECK(recomputed.out != compute(ExecutionSpace(), problem).out);
  Dropout other = typical_dropout;
  ++other.first_sample;
  CHECK(recomputed.out != compute(ExecutionSpace(), problem, other).out);
}

TEMPLATE_LIST_TEST_CASE("attention survives scores far beyond the range of the exponential", "", StorageTypes) {
  Problem<TestType> const problem({1, 19, 2, 8}, 60.0);
  Result const actual = compute(ExecutionSpace(), problem);
  CHECK(std::ranges::all_of(actual.probabilities, [](double p) { return p >= 0.0 && p <= 1.0 + 1e-6; }));
  CHECK(std::ranges::all_of(actual.d_qkv, [](double d) { return std::isfinite(d); }));
}

TEST_CASE("no position sees later ones") {
  struct Case {
    Index sequence, changed; // keys and values from here on
  };
  for (auto const& [sequence, changed] : {Case{23, 11}, Case{150, 64}, Case{150, 77}}) { // in one tile, over several
    Problem<float> problem({1, sequence, 2, 7});
    Result const before = compute(ExecutionSpace(), problem);
    for (Index t = changed; t < sequence; ++t)
      for (Index c = problem.channels(); c < 3 * problem.channels(); ++c)
        problem.qkv[static_cast<std::size_t>(t * 3 * problem.channels() + c)] += 1.5F;
    Result const after = compute(ExecutionSpace(), problem);
    auto const kept = static_cast<std::size_t>(changed * problem.channels());
    CHECK(std::equal(before.out.begin(), before.out.begin() + static_cast<std::ptrdiff_t>(kept), after.out.begin()));
    CHECK(before.out[kept] != after.out[kept]);
  }
}

TEST_CASE("attention leaves probabilities of 0 above the diagonal") {
  for (Index const sequence : {5, 16, 23, 64, 150}) {
    Result const actual = compute(ExecutionSpace(), Problem<float>({1, sequence, 1, 7}));
    for (Index t = 0; t < sequence; ++t) {
      double sum = 0;
      for (Index u = 0; u < sequence; ++u) {
        double const p = actual.probabilities[static_cast<std::size_t>(t * sequence + u)];
        if ((u <= t) != (p > 0)) FAIL_CHECK("sequence " << sequence << ", query " << t << ", key " << u << ": " << p);
        sum += p;
      }
      CHECK(std::abs(sum - 1) <= 8 * roundoff * static_cast<double>(sequence));
    }
  }
}

TEST_CASE("attention gives the same bits in every run and for any number of threads") {
  for (Shape const& shape : {Shape{3, 37, 3, 13}, Shape{2, 150, 3, 24}}) {
    Problem<float> const problem(shape);
    Result const first = compute(ExecutionSpace(), problem);
    for (ExecutionSpace const& exec : {ExecutionSpace(), smaller_instance()}) {
      Result const again = compute(exec, problem);
      CHECK(first.probabilities == again.probabilities);
      CHECK(first.out == again.out);
      CHECK(first.d_qkv == again.d_qkv);
    }
  }
}

TEST_CASE("attention counts the FLOPs of the lower triangle") {
  Problem<float> const problem({2, 5, 3, 4});
  std::uint64_t const before = counters().flops[Phase::attention];
  compute(ExecutionSpace(), problem);
  // B NH HS: products q k, p v of 2 FLOP over 15 pairs; backward twice that
  std::uint64_t const forward = 2 * 3 * 4 * 15 * 2 * 2;
  CHECK(attention_forward_flops(2, 5, 3, 4) == forward);
  CHECK(attention_backward_flops(2, 5, 3, 4) == 2 * forward);
  CHECK(counters().flops[Phase::attention] - before == 3 * forward);
}

TEST_CASE("attention's FLOPs are those of plain loops over heads, positions and what these see") {
  for (Shape const& s : all_shapes) {
    if (s.head_size > 64) continue;
    Problem<float> const problem(s);
    std::vector<double> const qkv = widened(problem.qkv), d_out = widened(problem.d_out);
    CountedLoops loops{s, qkv, d_out};
    loops.run();
    std::vector<double> probabilities(static_cast<std::size_t>(problem.pairs())), out(d_out.size()), d_qkv(qkv.size());
    reference::attention_forward(s, qkv, probabilities, out);
    reference::attention_backward(s, qkv, probabilities, d_out, d_qkv);
    // the loops are attention: sums of at most T HS terms of size 1, in double
    double const error = 0x1p-50 * static_cast<double>((s.sequence + 1) * s.head_size);
    CHECK(mismatches<double, double>(loops.out, out, error) == "");
    CHECK(mismatches<double, double>(loops.d_qkv, d_qkv, error) == "");
    CHECK(attention_forward_flops(s.batch, s.sequence, s.heads, s.head_size) == loops.forward);
    CHECK(attention_backward_flops(s.batch, s.sequence, s.heads, s.head_size) == loops.backward);
  }
}

TEST_CASE("attention refuses shapes that do not fit together") {
  ExecutionSpace const exec;
  DeviceTensor<float> const memory(1000, 0.0F);
  auto const call = [&](Index heads, Index columns, Index rows) {
    attention_forward<float>(exec, memory.matrix(rows, columns), heads, memory.tensor(1, heads, 5, 5),
                             memory.matrix(5, 6));
  };
  REQUIRE_THROWS_AS(call(2, 17, 5), Error);
  REQUIRE_THROWS_AS(call(4, 18, 5), Error);
  REQUIRE_THROWS_AS(call(2, 18, 6), Error);
}
