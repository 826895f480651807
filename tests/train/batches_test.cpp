#include "train/data/batches.hpp"

#include "core/error.hpp"
#include "train/data/sample_order.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <set>
#include <vector>

using namespace trainstone;
using Catch::Matchers::ContainsSubstring;

namespace {

/// Token i is i: every token tells where it comes from.
class CountingTokens : public TokenSource {
public:
  explicit CountingTokens(std::int64_t size) : m_size(size) {}
  std::int64_t size() const override { return m_size; }
  void read(std::int64_t offset, std::span<std::int32_t> out) const override {
    TRAINSTONE_REQUIRE(offset >= 0 && offset + static_cast<std::int64_t>(out.size()) <= m_size, "outside");
    for (std::int32_t& token : out) token = static_cast<std::int32_t>(offset++);
  }

private:
  std::int64_t m_size;
};

struct MicroBatch {
  std::vector<std::int32_t> inputs;
  std::vector<std::int32_t> targets;
  bool operator==(MicroBatch const&) const = default;

  MicroBatch(Index micro, Index sequence)
      : inputs(static_cast<std::size_t>(micro * sequence), -1), targets(inputs.size(), -1) {}
};

BatchConfig batch_of(Index micro, Index global) { return {.micro = micro, .accumulation = 0, .global = global}; }

/// The numbers of the samples in a micro-batch of a CountingTokens; fails where a sample is not [iT, iT + T].
std::vector<Index> samples_in(MicroBatch const& batch, Index sequence) {
  std::vector<Index> samples;
  for (std::size_t i = 0; i < batch.inputs.size(); ++i) {
    std::int32_t const offset = static_cast<std::int32_t>(static_cast<Index>(i) % sequence);
    if (offset == 0) samples.push_back(batch.inputs[i] / sequence);
    CAPTURE(i, batch.inputs[i], batch.targets[i]);
    REQUIRE(batch.inputs[i] == samples.back() * sequence + offset);
    REQUIRE(batch.targets[i] == batch.inputs[i] + 1);
  }
  return samples;
}

/// The samples of a step in the order of micro-batches, each read by its rank.
std::vector<std::vector<Index>> step_on_ranks(SampleRange const& samples, BatchConfig const& batch, std::int64_t step,
                                              Index ranks, bool validation) {
  Index const micro_batches = batch.global / batch.micro;
  std::vector<std::vector<Index>> result(static_cast<std::size_t>(micro_batches));
  for (Index rank = 0; rank < ranks; ++rank) {
    for (Index own = 0; own < micro_batches / ranks; ++own) {
      Index const v = rank * (micro_batches / ranks) + own;
      MicroBatch read(batch.micro, samples.sequence);
      if (validation) {
        read_validation_batch(samples, batch, step, v, read.inputs, read.targets);
      } else {
        read_training_batch(samples, 21, batch, step, v, read.inputs, read.targets);
      }
      REQUIRE(result[static_cast<std::size_t>(v)].empty());
      result[static_cast<std::size_t>(v)] = samples_in(read, samples.sequence);
    }
  }
  return result;
}

} // namespace

TEST_CASE("a source of S tokens has (S - 1) / T samples, and the last one ends with the source") {
  Index const sequence = 5;
  for (std::int64_t const size : {6, 10, 11, 12, 15, 16}) {
    CAPTURE(size);
    CountingTokens const source(size);
    SampleRange const samples = split_by_fraction(source, sequence, 0).training;
    REQUIRE(samples.count == (size - 1) / 5);
    MicroBatch last(1, sequence);
    samples.read(samples.count - 1, last.inputs, last.targets);
    CHECK(samples_in(last, sequence) == std::vector<Index>{samples.count - 1});
    CHECK_THROWS_AS(samples.read(samples.count, last.inputs, last.targets), Error);
    CHECK_THROWS_AS(samples.read(-1, last.inputs, last.targets), Error);
  }
}

TEST_CASE("sequences of a single token are samples too") {
  CountingTokens const source(4);
  SampleRange const samples = split_by_fraction(source, 1, 0).training;
  REQUIRE(samples.count == 3);
  MicroBatch read(1, 1);
  samples.read(2, read.inputs, read.targets);
  CHECK(read.inputs == std::vector<std::int32_t>{2});
  CHECK(read.targets == std::vector<std::int32_t>{3});
}

TEST_CASE("the held-out fraction is the tail of the source") {
  CountingTokens const source(7 * 101 + 3); // 101 samples
  SampleSplit const split = split_by_fraction(source, 7, 0.1);
  CHECK(split.training.first == 0);
  CHECK(split.training.count == 91);
  CHECK(split.held_out.first == 91);
  CHECK(split.held_out.count == 10);
  MicroBatch read(1, 7);
  split.held_out.read(0, read.inputs, read.targets);
  CHECK(samples_in(read, 7) == std::vector<Index>{91});
}

TEST_CASE("a split without training or held-out samples is refused with the numbers") {
  CountingTokens const five(5), eleven(11), hundred(100);
  CHECK_THROWS_WITH(split_by_fraction(five, 5, 0), ContainsSubstring("5 tokens") && ContainsSubstring("takes 6"));
  CHECK_THROWS_WITH(split_by_fraction(eleven, 5, 0.4),
                    ContainsSubstring("2 samples") && ContainsSubstring("at least 0.5"));
  CHECK_NOTHROW(split_by_fraction(eleven, 5, 0.5));
  CHECK_THROWS_WITH(split_by_source(five, hundred, 5), ContainsSubstring("the data has 5 tokens"));
  CHECK_THROWS_WITH(split_by_source(hundred, five, 5), ContainsSubstring("the validation data has 5 tokens"));
  CHECK_THROWS_AS(split_by_fraction(hundred, 5, 1.0), InputError);
  CHECK_THROWS_AS(split_by_fraction(hundred, 5, -0.1), InputError);
  CHECK_THROWS_AS(split_by_fraction(hundred, 0, 0), InputError);
}

TEST_CASE("the samples of a training step are the same for every number of ranks") {
  CountingTokens const source(3 * 50 + 1);
  SampleRange const samples = split_by_fraction(source, 3, 0.06).training; // 47 samples: epochs end inside steps
  REQUIRE(samples.count == 47);
  BatchConfig const batch = batch_of(3, 12);
  std::vector<Index> first_epoch;
  for (std::int64_t step = 0; step < 9; ++step) {
    auto const alone = step_on_ranks(samples, batch, step, 1, false);
    CAPTURE(step);
    CHECK(step_on_ranks(samples, batch, step, 2, false) == alone);
    CHECK(step_on_ranks(samples, batch, step, 4, false) == alone);
    for (auto const& micro_batch : alone) first_epoch.insert(first_epoch.end(), micro_batch.begin(), micro_batch.end());
  }
  first_epoch.resize(47);
  CHECK(std::set<Index>(first_epoch.begin(), first_epoch.end()).size() == 47);
  CHECK(first_epoch.front() == permuted(21, 0, 47, 0));
}

TEST_CASE("the rows of a global batch do not depend on the size of the micro-batch") {
  CountingTokens const source(1001);
  SampleRange const samples = split_by_fraction(source, 4, 0).training;
  auto const rows = [&](Index micro) {
    std::vector<Index> all;
    for (auto const& part : step_on_ranks(samples, batch_of(micro, 12), 3, 1, false)) {
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  };
  CHECK(rows(1) == rows(12));
  CHECK(rows(4) == rows(12));
}

TEST_CASE("a validation takes the first held-out samples in order, the same for every number of ranks") {
  CountingTokens const source(2 * 100 + 1);
  SampleRange const held_out = split_by_fraction(source, 2, 0.3).held_out; // samples 70 to 99
  BatchConfig const batch = batch_of(2, 8);
  Index const batches = validation_batches(held_out, batch, 0);
  REQUIRE(batches == 3);
  for (Index const ranks : {1, 2, 4}) {
    std::vector<Index> all;
    for (Index number = 0; number < batches; ++number) {
      for (auto const& part : step_on_ranks(held_out, batch, number, ranks, true)) {
        all.insert(all.end(), part.begin(), part.end());
      }
    }
    REQUIRE(all.size() == 24);
    CAPTURE(ranks);
    for (std::size_t i = 0; i < all.size(); ++i) CHECK(all[i] == 70 + static_cast<Index>(i));
  }
}

TEST_CASE("validation batches that the held-out samples do not fill are refused with the numbers") {
  CountingTokens const source(2 * 100 + 1);
  SampleRange const held_out = split_by_fraction(source, 2, 0.3).held_out; // 30 samples
  CHECK(validation_batches(held_out, batch_of(2, 8), 2) == 2);
  CHECK_THROWS_WITH(validation_batches(held_out, batch_of(2, 8), 4),
                    ContainsSubstring("need 32 held-out samples") && ContainsSubstring("there are 30"));
  CHECK_THROWS_WITH(validation_batches(held_out, batch_of(2, 32), 0), ContainsSubstring("there are 30"));
}

TEST_CASE("arrays and micro-batches that do not fit the batch are refused") {
  CountingTokens const source(100);
  SampleRange const samples = split_by_fraction(source, 4, 0.5).held_out;
  MicroBatch wrong(3, 4), right(2, 4);
  CHECK_THROWS_AS(read_training_batch(samples, 1, batch_of(2, 4), 0, 0, wrong.inputs, right.targets), Error);
  CHECK_THROWS_AS(read_training_batch(samples, 1, batch_of(2, 4), 0, 0, right.inputs, wrong.targets), Error);
  CHECK_THROWS_AS(read_training_batch(samples, 1, batch_of(2, 4), 0, 2, right.inputs, right.targets), Error);
  CHECK_THROWS_AS(read_validation_batch(samples, batch_of(2, 4), 0, 2, right.inputs, right.targets), Error);
  CHECK_THROWS_AS(read_validation_batch(samples, batch_of(2, 4), 100, 0, right.inputs, right.targets), Error);
}
