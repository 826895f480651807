// Kernels that compute on slices: of the token table, of the vocabulary, of the positions. What slices give together is
// what the whole gives: to the bit, but for sums that go over slices.

#include "core/error.hpp"
#include "kernels/accumulate.hpp"
#include "kernels/common/row.hpp"
#include "kernels/cross_entropy.hpp"
#include "kernels/embedding.hpp"
#include "kernels/layernorm.hpp"
#include "kernels/positions.hpp"
#include "kernels/reference/reference.hpp"
#include "support/compare.hpp"
#include "support/instances.hpp"
#include "support/views.hpp"

#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

using namespace trainstone;
using namespace trainstone::test;

namespace {

/// A sum as text: "((0+1)+2)". Devices have no strings.
struct Expression {
  char text[32] = {};
  int length = 0;

  KOKKOS_FUNCTION void add(char letter) { text[length++] = letter; }
  KOKKOS_FUNCTION void add(Expression const& other) {
    for (int i = 0; i < other.length; ++i) add(other.text[i]);
  }
  KOKKOS_FUNCTION Expression& operator+=(Expression const& right) {
    Expression sum;
    sum.add('(');
    sum.add(*this);
    sum.add('+');
    sum.add(right);
    sum.add(')');
    return *this = sum;
  }
};

struct Digit {
  KOKKOS_FUNCTION Expression operator()(Index i) const {
    Expression digit;
    digit.add(static_cast<char>('0' + i));
    return digit;
  }
};

std::vector<std::int32_t> some_tokens(Index count, Index vocab) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(count));
  for (std::size_t n = 0; n < tokens.size(); ++n) tokens[n] = static_cast<std::int32_t>((n * n + 3 * n) % vocab);
  return tokens;
}

/// Rows [first, first + count) of a matrix.
template <class T>
Matrix<T> rows_of(DeviceTensor<T> const& table, Index first, Index count, Index columns) {
  return Matrix<T>(table.vector().data() + first * columns, static_cast<std::size_t>(count),
                   static_cast<std::size_t>(columns));
}

} // namespace

TEST_CASE("a tree over values adds neighbours level by level") {
  auto const tree = [](Index count) {
    Expression const found = Impl::tree_over<5>(count, Digit());
    return std::string(found.text, static_cast<std::size_t>(found.length));
  };
  CHECK(tree(1) == "0");
  CHECK(tree(2) == "(0+1)");
  CHECK(tree(3) == "((0+1)+2)");
  CHECK(tree(4) == "((0+1)+(2+3))");
  CHECK(tree(6) == "(((0+1)+(2+3))+(4+5))");
  CHECK(tree(7) == "(((0+1)+(2+3))+((4+5)+6))");
  CHECK(tree(8) == "(((0+1)+(2+3))+((4+5)+(6+7)))");
}

TEMPLATE_LIST_TEST_CASE("slices of the token table give the rows of the whole table", "", StorageTypes) {
  using T = TestType;
  Index const slices = GENERATE(1, 2, 4);
  Index const batch = 3, sequence = 7, positions = 9, channels = 13, vocab = 12, size = vocab / slices;
  Index const rows = batch * sequence;
  DeviceTensor<std::int32_t> const tokens(some_tokens(rows, vocab));
  std::vector<T> table = stored<T>(random_values(vocab * channels, 1));
  table[5] = from_float<T>(-0.0F);
  DeviceTensor<T> const wte(table), wpe(stored<T>(random_values(positions * channels, 2)));
  DeviceTensor<T> const whole(rows * channels, T{}), sum(rows * channels, T{}), out(rows * channels, T{});
  ExecutionSpace const exec;
  embedding_forward<T>(exec, tokens.vector(), wte.matrix(vocab, channels), wpe.matrix(positions, channels), sequence,
                       whole.matrix(rows, channels));
  for (Index slice = 0; slice < slices; ++slice)
    embedding_lookup<T, T>(exec, tokens.vector(), slice * size, rows_of(wte, slice * size, size, channels),
                           slice == 0 ? Write::overwrite : Write::add, sum.matrix(rows, channels));
  embedding_add_positions<T>(exec, sum.matrix(rows, channels), wpe.matrix(positions, channels), sequence,
                             out.matrix(rows, channels));
  CHECK(widened(out.values()) == widened(whole.values()));

  // another rank's tokens become 0, and -0 becomes +0
  embedding_lookup<T, T>(exec, tokens.vector(), 0, rows_of(wte, 0, size, channels), Write::overwrite,
                         sum.matrix(rows, channels));
  std::vector<T> const looked_up = sum.values();
  for (Index n = 0; n < rows; ++n)
    for (Index c = 0; c < channels; ++c) {
      Index const token = some_tokens(rows, vocab)[static_cast<std::size_t>(n)];
      float const value = to_float(looked_up[static_cast<std::size_t>(n * channels + c)]);
      float const expected = token < size ? to_float(table[static_cast<std::size_t>(token * channels + c)]) : 0.0F;
      REQUIRE(value == expected);
      REQUIRE((value != 0.0F || !std::signbit(value)));
    }
}

TEMPLATE_LIST_TEST_CASE("slices of the token table get the gradient of the whole table", "", StorageAndGradientTypes) {
  using T = typename TestType::Storage;
  using Gradient = typename TestType::Gradient;
  Index const rows = 40, channels = 17, vocab = 12, slices = GENERATE(1, 3, 4), size = vocab / slices;
  std::vector<std::int32_t> order(rows), begin(rows + 1), token(rows);
  build_token_buckets(some_tokens(rows, vocab), vocab, order, begin, token);
  DeviceTensor<std::int32_t> const order_d(order), begin_d(begin), token_d(token);
  TokenBuckets const buckets{order_d.vector(), begin_d.vector(), token_d.vector()};
  DeviceTensor<T> const d_out(stored<T>(random_values(rows * channels, 3)));
  std::vector<Gradient> const before = stored<Gradient>(random_values(vocab * channels, 4));
  DeviceTensor<Gradient> const whole(before), cut(before), d_wpe(rows * channels, Gradient{});
  ExecutionSpace const exec;
  embedding_backward<T, Gradient>(exec, buckets, d_out.matrix(rows, channels), rows, whole.matrix(vocab, channels),
                                  d_wpe.matrix(rows, channels), Write::overwrite);
  for (Index slice = 0; slice < slices; ++slice)
    embedding_backward_tokens<T, Gradient>(exec, buckets, d_out.matrix(rows, channels), slice * size,
                                           rows_of(cut, slice * size, size, channels));
  CHECK(widened(cut.values()) == widened(whole.values()));
}

TEMPLATE_LIST_TEST_CASE("sums over blocks of positions depend on the block's rows alone", "", StorageTypes) {
  using T = TestType;
  Index const blocks = GENERATE(1, 2, 4, 8);
  Index const batch = 3, sequence = 48, rows = batch * sequence, columns = 300, length = sequence / blocks;
  std::vector<T> const d_y = stored<T>(random_values(rows * columns, 1)),
                       x = stored<T>(random_values(rows * columns, 2));
  std::vector<float> const mean = random_values(rows, 3), rstd = random_values(rows, 4, 0.5, 2.0);
  ExecutionSpace const exec;
  auto const block_sums = [&](std::vector<Index> const& chosen, Index positions, Index count) {
    std::vector<T> some_d_y, some_x;
    std::vector<float> some_mean, some_rstd;
    for (Index const row : chosen) {
      auto const first = static_cast<std::size_t>(row * columns), size = static_cast<std::size_t>(columns);
      some_d_y.insert(some_d_y.end(), d_y.begin() + first, d_y.begin() + first + size);
      some_x.insert(some_x.end(), x.begin() + first, x.begin() + first + size);
      some_mean.push_back(mean[static_cast<std::size_t>(row)]);
      some_rstd.push_back(rstd[static_cast<std::size_t>(row)]);
    }
    DeviceTensor<T> const d_y_d(some_d_y), x_d(some_x);
    DeviceTensor<float> const mean_d(some_mean), rstd_d(some_rstd), sums(count * 2 * columns, -1.0F);
    Index const some = std::ssize(chosen);
    layernorm_block_sums<T>(exec, d_y_d.matrix(some, columns), x_d.matrix(some, columns), mean_d.vector(),
                            rstd_d.vector(), positions, sums.matrix(count, 2 * columns));
    return sums.values();
  };
  std::vector<Index> all(rows);
  for (Index row = 0; row < rows; ++row) all[static_cast<std::size_t>(row)] = row;
  std::vector<float> const sums = block_sums(all, sequence, blocks);
  for (Index block = 0; block < blocks; ++block) { // as a rank computes it that has these rows alone
    std::vector<Index> mine;
    for (Index const row : all)
      if (row % sequence / length == block) mine.push_back(row);
    std::vector<float> const alone = block_sums(mine, length, 1);
    CHECK(std::equal(alone.begin(), alone.end(), sums.begin() + block * 2 * columns));
  }

  DeviceTensor<float> const sums_d(sums), d_gamma(columns, 5.0F), d_beta(columns, 6.0F);
  layernorm_sum_blocks<float>(exec, sums_d.matrix(blocks, 2 * columns), d_gamma.vector(), d_beta.vector(), Write::add);
  std::vector<double> expected_gamma(columns, 5.0), expected_beta(columns, 6.0), d_x(rows * columns);
  reference::layernorm_backward(widened(d_y), widened(x), std::vector<double>(columns, 1.0), widened(mean),
                                widened(rstd), d_x, expected_gamma, expected_beta);
  // sums of at most N terms of at most 6 (|x - mean| <= 3, rstd <= 2), and as many roundings as partial sums
  double const bound = 6 * roundoff * static_cast<double>(rows) * std::sqrt(static_cast<double>(rows));
  CHECK(mismatches<double, double>(widened(d_gamma.values()), expected_gamma, bound) == "");
  CHECK(mismatches<double, double>(widened(d_beta.values()), expected_beta, bound) == "");

  if (blocks > 1) return; // one block: the kernel without blocks
  DeviceTensor<T> const d_y_d(d_y), x_d(x), gamma(columns, from_float<T>(1.0F)), d_x_d(rows * columns, T{});
  DeviceTensor<float> const mean_d(mean), rstd_d(rstd), plain_gamma(columns, 5.0F), plain_beta(columns, 6.0F);
  layernorm_backward<T, float>(exec, d_y_d.matrix(rows, columns), x_d.matrix(rows, columns), gamma.vector(),
                               mean_d.vector(), rstd_d.vector(), d_x_d.matrix(rows, columns), Write::overwrite,
                               plain_gamma.vector(), plain_beta.vector(), Write::add);
  CHECK(d_gamma.values() == plain_gamma.values());
  CHECK(d_beta.values() == plain_beta.values());
}

namespace {

template <class T>
struct Loss {
  std::vector<float> losses;
  std::vector<T> logits; ///< afterwards, of all slices side by side
};

/// The loss of rows whose vocabulary lies in slices of so many columns, one matrix each.
template <class T>
Loss<T> sliced_loss(std::vector<T> const& logits, std::vector<std::int32_t> const& targets, Index vocab, Index slices,
                    Index size, LogitsUse use, float scale) {
  ExecutionSpace const exec;
  Index const rows = std::ssize(targets), columns = slices * size;
  std::vector<T> by_slice(logits.size());
  auto const place = [&](Index n, Index v) {
    return static_cast<std::size_t>(v / size * rows * size + n * size + v % size);
  };
  for (Index n = 0; n < rows; ++n)
    for (Index v = 0; v < columns; ++v) by_slice[place(n, v)] = logits[static_cast<std::size_t>(n * columns + v)];
  DeviceTensor<T> const logits_d(by_slice);
  DeviceTensor<std::int32_t> const targets_d(targets);
  DeviceTensor<float> const maxima(rows, 7.0F), losses(rows, -1.0F);
  DeviceTensor<double> const sums(slices * rows * 2, -1.0);
  auto const valid = [&](Index slice) { return std::clamp<Index>(vocab - slice * size, 0, size); };
  auto const of_slice = [&](Index slice) { return rows_of(logits_d, slice * rows, rows, size); };
  for (Index slice = 0; slice < slices; ++slice)
    cross_entropy_maximum<T>(exec, of_slice(slice), valid(slice), slice == 0 ? Write::overwrite : Write::add,
                             maxima.vector());
  for (Index slice = 0; slice < slices; ++slice)
    cross_entropy_sums<T>(exec, of_slice(slice), targets_d.vector(), slice * size, valid(slice), maxima.vector(), use,
                          rows_of(sums, slice * rows, rows, 2));
  add_parts<double>(exec, sums.matrix(slices, 2 * rows));
  Matrix<double> const total = rows_of(sums, 0, rows, 2);
  cross_entropy_losses(exec, maxima.vector(), total, losses.vector());
  for (Index slice = 0; slice < slices && use == LogitsUse::become_gradient; ++slice)
    cross_entropy_gradient<T>(exec, of_slice(slice), targets_d.vector(), slice * size, valid(slice), maxima.vector(),
                              total, scale);
  Loss<T> result{losses.values(), std::vector<T>(logits.size())};
  by_slice = logits_d.values();
  for (Index n = 0; n < rows; ++n)
    for (Index v = 0; v < columns; ++v)
      result.logits[static_cast<std::size_t>(n * columns + v)] = by_slice[place(n, v)];
  return result;
}

} // namespace

TEMPLATE_LIST_TEST_CASE("the loss over slices of the vocabulary equals the reference", "", StorageTypes) {
  using T = TestType;
  Index const slices = GENERATE(1, 2, 4, 8), rows = 37, columns = 128, size = columns / slices;
  Index const vocab = GENERATE(100, 128); // of 8 slices, the last one is padding alone, and another one in part
  double const range = GENERATE(1.0, 30.0);
  float const scale = 0.125F;
  std::vector<T> const logits = stored<T>(random_values(rows * columns, 1, -range, range));
  std::vector<std::int32_t> const targets = some_tokens(rows, vocab);
  Loss<T> const actual = sliced_loss(logits, targets, vocab, slices, size, LogitsUse::become_gradient, scale);
  std::vector<double> expected = widened(logits), losses(static_cast<std::size_t>(rows));
  reference::cross_entropy_backward_fused(expected, targets, vocab, static_cast<double>(scale), losses);
  // as for the whole vocabulary (cross_entropy_test.cpp); sums over slices are fp64
  double const relative = roundoff * (3 + 2 * range + std::sqrt(512.0));
  CHECK(mismatches<float, double>(actual.losses, losses, relative + roundoff * (2 * range + 8)) == "");
  CHECK(mismatches<double, double>(widened(actual.logits), expected,
                                   stored_within<T>(2 * static_cast<double>(scale) * relative)) == "");
  Loss<T> const evaluated = sliced_loss(logits, targets, vocab, slices, size, LogitsUse::kept, scale);
  CHECK(evaluated.losses == actual.losses);
  CHECK(widened(evaluated.logits) == widened(logits));

  if (slices > 1) return; // one slice: the fused kernel
  DeviceTensor<T> const whole(logits);
  DeviceTensor<float> const whole_losses(rows, 0.0F);
  DeviceTensor<std::int32_t> const targets_d(targets);
  cross_entropy_backward_fused<T>(ExecutionSpace(), whole.matrix(rows, columns), targets_d.vector(), vocab, scale,
                                  whole_losses.vector());
  CHECK(whole_losses.values() == actual.losses);
  CHECK(widened(whole.values()) == widened(actual.logits));
}

TEMPLATE_LIST_TEST_CASE("rows of some positions are taken from their places among all rows, and put there", "",
                        StorageTypes) {
  using T = TestType;
  Index const samples = GENERATE(1, 3), sequence = 8, length = GENERATE(8, 3, 1), first = GENERATE(0, 5), columns = 37;
  if (first + length > sequence) return;
  Index const rows = samples * sequence, own_rows = samples * length;
  std::vector<float> const all = random_values(rows * columns, 1);
  DeviceTensor<float> const wide(all);
  DeviceTensor<T> const narrow(stored<T>(all)), taken(own_rows * columns, T{}), rounded(own_rows * columns, T{});
  DeviceTensor<T> const placed(rows * columns, from_float<T>(7.0F));
  ExecutionSpace const exec;
  take_positions<T, T>(exec, narrow.matrix(rows, columns), samples, first, taken.matrix(own_rows, columns));
  take_positions<float, T>(exec, wide.matrix(rows, columns), samples, first, rounded.matrix(own_rows, columns));
  place_positions<T>(exec, taken.matrix(own_rows, columns), samples, first, placed.matrix(rows, columns));
  std::vector<double> own, expected = widened(placed.values());
  for (Index n = 0; n < rows; ++n) {
    bool const is_own = n % sequence >= first && n % sequence < first + length;
    for (Index c = 0; c < columns; ++c) {
      auto const i = static_cast<std::size_t>(n * columns + c);
      double const value = static_cast<double>(to_float(from_float<T>(all[i])));
      if (is_own) own.push_back(value);
      expected[i] = is_own ? value : 7.0;
    }
  }
  CHECK(widened(taken.values()) == own);
  CHECK(widened(rounded.values()) == own);
  CHECK(widened(placed.values()) == expected);
}

TEST_CASE("a NaN in any slice makes the row's loss NaN") {
  std::vector<float> logits = random_values(2 * 64, 1);
  logits[64 + 37] = std::numeric_limits<float>::quiet_NaN();
  Loss<float> const result = sliced_loss<float>(logits, {5, 6}, 64, 4, 16, LogitsUse::become_gradient, 1.0F);
  CHECK(std::isfinite(result.losses[0]));
  CHECK(std::isnan(result.losses[1]));
}

TEST_CASE("kernels on slices refuse extents that do not fit") {
  ExecutionSpace const exec;
  DeviceTensor<float> const values(64, 0.0F), four(4, 0.0F);
  DeviceTensor<double> const sums(8, 0.0);
  DeviceTensor<std::int32_t> const tokens(std::vector<std::int32_t>{0, 1, 2, 3});
  CHECK_THROWS_AS((embedding_lookup<float, float>(exec, tokens.vector(), 0, values.matrix(2, 4), Write::overwrite,
                                                  values.matrix(4, 5))),
                  Error);
  CHECK_THROWS_AS(
      embedding_add_positions<float>(exec, values.matrix(4, 4), values.matrix(2, 4), 4, values.matrix(4, 4)), Error);
  CHECK_THROWS_AS(cross_entropy_maximum<float>(exec, values.matrix(4, 4), 5, Write::overwrite, four.vector()), Error);
  CHECK_THROWS_AS(cross_entropy_sums<float>(exec, values.matrix(4, 4), tokens.vector(), 0, 4, four.vector(),
                                            LogitsUse::kept, sums.matrix(2, 2)),
                  Error);
  CHECK_THROWS_AS(cross_entropy_losses(exec, four.vector(), sums.matrix(2, 2), four.vector()), Error);
  CHECK_THROWS_AS(layernorm_block_sums<float>(exec, values.matrix(4, 4), values.matrix(4, 4), four.vector(),
                                              four.vector(), 4, values.matrix(3, 8)),
                  Error); // 4 positions in 3 blocks
  Matrix<float> const rows_of_4 = values.matrix(8, 4), rows_of_2 = values.matrix(4, 4);
  CHECK_NOTHROW(place_positions<float>(exec, rows_of_2, 2, 2, rows_of_4));
  CHECK_THROWS_AS(place_positions<float>(exec, rows_of_2, 2, 3, rows_of_4), Error);  // behind the last position
  CHECK_THROWS_AS(place_positions<float>(exec, rows_of_2, 2, -1, rows_of_4), Error); // before the first one
  CHECK_THROWS_AS(place_positions<float>(exec, rows_of_2, 3, 0, rows_of_4), Error);  // no whole samples
  CHECK_THROWS_AS((take_positions<float, float>(exec, rows_of_4, 0, 0, rows_of_2)), Error);
  CHECK_THROWS_AS((take_positions<float, float>(exec, values.matrix(8, 8), 2, 0, rows_of_2)), Error);
  CHECK_THROWS_AS(layernorm_sum_blocks<float>(exec, values.matrix(2, 8), four.vector(), values.vector(), Write::add),
                  Error);
}
