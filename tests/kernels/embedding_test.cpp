#include "kernels/embedding.hpp"

#include "core/error.hpp"
#include "kernels/reference/reference.hpp"
#include "support/compare.hpp"
#include "support/instances.hpp"
#include "support/views.hpp"

#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cstring>

using namespace trainstone;
using namespace trainstone::test;

namespace {

using Tokens = std::vector<std::int32_t>;

Tokens some_tokens(Index count, Index vocab) {
  Tokens tokens(static_cast<std::size_t>(count));
  for (std::size_t n = 0; n < tokens.size(); ++n) tokens[n] = static_cast<std::int32_t>((n * n + 3 * n) % vocab);
  return tokens;
}

struct HostBuckets {
  Tokens order, begin, token;

  HostBuckets(Tokens const& tokens, Index vocab)
      : order(tokens.size()), begin(tokens.size() + 1), token(tokens.size()) {
    build_token_buckets(tokens, vocab, order, begin, token);
  }
};

struct Sizes {
  Index batch, sequence, positions, channels, vocab;
  Index rows() const { return batch * sequence; }
};

Sizes const all_sizes[] = {{1, 1, 1, 1, 1},      {3, 5, 7, 13, 11}, {2, 4, 4, 300, 5},
                           {5, 31, 33, 17, 101}, {0, 3, 4, 5, 6},   {1, 700, 701, 3, 2}};

template <class T>
std::vector<T> output_gradient(Sizes const& s) {
  return stored<T>(random_values(s.rows() * s.channels, 3));
}

template <class Gradient>
struct Gradients {
  std::vector<Gradient> wte, wpe;
};

template <class T, class Gradient>
Gradients<Gradient> backward(ExecutionSpace const& exec, Sizes const& s, std::vector<Gradient> const& wte_before,
                             std::vector<Gradient> const& wpe_before, Write mode) {
  HostBuckets const host(some_tokens(s.rows(), s.vocab), s.vocab);
  DeviceTensor<std::int32_t> const order(host.order), begin(host.begin), token(host.token);
  DeviceTensor<T> const d_out(output_gradient<T>(s));
  DeviceTensor<Gradient> const d_wte(wte_before), d_wpe(wpe_before);
  embedding_backward<T, Gradient>(exec, {order.vector(), begin.vector(), token.vector()},
                                  d_out.matrix(s.rows(), s.channels), s.sequence, d_wte.matrix(s.vocab, s.channels),
                                  d_wpe.matrix(s.positions, s.channels), mode);
  return {d_wte.values(), d_wpe.values()};
}

} // namespace

TEST_CASE("token buckets hold every row once, sorted by token and row") {
  for (Index const vocab : {1, 2, 7, 1000}) {
    for (Index const rows : {0, 1, 2, 97}) {
      Tokens const tokens = some_tokens(rows, vocab);
      HostBuckets const buckets(tokens, vocab);
      Tokens sorted = buckets.order;
      std::ranges::sort(sorted);
      for (std::size_t n = 0; n < sorted.size(); ++n) REQUIRE(sorted[n] == static_cast<std::int32_t>(n));
      REQUIRE(buckets.begin.back() == rows);
      std::int32_t previous = -1;
      for (std::size_t j = 0; j < buckets.token.size(); ++j) {
        auto const first = buckets.order.begin() + buckets.begin[j],
                   last = buckets.order.begin() + buckets.begin[j + 1];
        REQUIRE((first == last) == (buckets.token[j] == -1));
        if (first == last) continue;
        REQUIRE(buckets.token[j] > previous);
        REQUIRE(std::is_sorted(first, last));
        REQUIRE(std::all_of(first, last, [&](std::int32_t row) { return tokens[row] == buckets.token[j]; }));
        previous = buckets.token[j];
      }
    }
  }
}

TEST_CASE("token buckets refuse a token outside the vocabulary") {
  REQUIRE_THROWS_AS(HostBuckets({0, 1, 5}, 5), Error);
  REQUIRE_THROWS_AS(HostBuckets({0, -1}, 5), Error);
}

TEMPLATE_LIST_TEST_CASE("embedding forward adds token and position rows exactly", "", StorageTypes) {
  using T = TestType;
  ExecutionSpace const exec;
  for (Sizes const& s : all_sizes) {
    Tokens const tokens = some_tokens(s.rows(), s.vocab);
    std::vector<T> const wte = stored<T>(random_values(s.vocab * s.channels, 1));
    std::vector<T> const wpe = stored<T>(random_values(s.positions * s.channels, 2));
    DeviceTensor<std::int32_t> const tokens_d(tokens);
    DeviceTensor<T> const wte_d(wte), wpe_d(wpe), out(s.rows() * s.channels, from_float<T>(-1.0F));
    embedding_forward<T>(exec, tokens_d.vector(), wte_d.matrix(s.vocab, s.channels),
                         wpe_d.matrix(s.positions, s.channels), s.sequence, out.matrix(s.rows(), s.channels));

    std::vector<double> expected(static_cast<std::size_t>(s.rows() * s.channels));
    reference::embedding_forward(tokens, widened(wte), widened(wpe), s.sequence, expected);
    // one rounding, and that of storing
    CHECK(mismatches<double, double>(widened(out.values()), expected,
                                     [](double x) { return stored_within<T>(roundoff * std::abs(x))(x); }) == "");
  }
}

TEMPLATE_LIST_TEST_CASE("embedding backward equals the reference in both modes", "", StorageAndGradientTypes) {
  using T = typename TestType::Storage;
  using Gradient = typename TestType::Gradient;
  ExecutionSpace const exec;
  for (Sizes const& s : all_sizes) {
    std::vector<Gradient> const wte_before = stored<Gradient>(random_values(s.vocab * s.channels, 4));
    std::vector<Gradient> const wpe_before = stored<Gradient>(random_values(s.positions * s.channels, 5));
    for (Write const mode : {Write::overwrite, Write::add}) {
      Gradients<Gradient> const actual = backward<T>(exec, s, wte_before, wpe_before, mode);
      std::vector<double> d_wte = widened(wte_before), d_wpe = widened(wpe_before);
      if (mode == Write::overwrite) std::ranges::fill(d_wpe, 0.0);
      reference::embedding_backward(some_tokens(s.rows(), s.vocab), widened(output_gradient<T>(s)), s.sequence, d_wte,
                                    d_wpe);
      // sums of at most N + 1 terms of at most 2, every partial sum at most 2 (N + 1): sqrt(N + 1) roundings of it
      double const terms = static_cast<double>(s.rows() + 1);
      double const bound = 2 * roundoff * terms * std::sqrt(terms);
      CHECK(mismatches<double, double>(widened(actual.wte), d_wte, stored_within<Gradient>(bound)) == "");
      CHECK(mismatches<double, double>(widened(actual.wpe), d_wpe, stored_within<Gradient>(bound)) == "");
    }
  }
}

TEST_CASE("embedding backward gives the same bits in every run and for any number of threads") {
  Sizes const s{7, 31, 32, 300, 13};
  std::vector<float> const zeros_wte(static_cast<std::size_t>(s.vocab * s.channels));
  std::vector<float> const zeros_wpe(static_cast<std::size_t>(s.positions * s.channels));
  Gradients<float> const first = backward<float>(ExecutionSpace(), s, zeros_wte, zeros_wpe, Write::overwrite);
  for (ExecutionSpace const& exec : {ExecutionSpace(), smaller_instance()}) {
    Gradients<float> const again = backward<float>(exec, s, zeros_wte, zeros_wpe, Write::overwrite);
    CHECK(std::memcmp(first.wte.data(), again.wte.data(), first.wte.size() * sizeof(float)) == 0);
    CHECK(std::memcmp(first.wpe.data(), again.wpe.data(), first.wpe.size() * sizeof(float)) == 0);
  }
}

TEST_CASE("embedding names both shapes when extents differ") {
  ExecutionSpace const exec;
  DeviceTensor<std::int32_t> const tokens(Tokens{0, 1, 0});
  DeviceTensor<float> const wte(8, 0.0F), wpe(12, 0.0F), out(12, 0.0F);
  auto const call = [&](Index sequence, Index columns) {
    embedding_forward<float>(exec, tokens.vector(), wte.matrix(2, 4), wpe.matrix(3, columns), sequence,
                             out.matrix(3, 4));
  };
  REQUIRE_NOTHROW(call(3, 4));
  REQUIRE_THROWS_AS(call(3, 3), Error);
  REQUIRE_THROWS_AS(call(2, 4), Error);
  REQUIRE_THROWS_AS(call(0, 4), Error);
}
