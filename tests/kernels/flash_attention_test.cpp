#include "kernels/attention/flash_attention.hpp"

#include "core/error.hpp"
#include "core/launch.hpp"
#include "kernels/dropout_mask.hpp"
#include "kernels/gemm/tile_product.hpp"
#include "support/attention_problem.hpp"
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

using Problem = AttentionProblem;
using Shape = Problem::Shape;
using Result = AttentionResult;
using Expected = AttentionReference;

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

template <class T>
std::string differences(Problem const& problem, Expected const& expected) {
  return attention_mismatches<T>(problem, expected, compute<T>(ExecutionSpace(), problem));
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
