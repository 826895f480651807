#include "train/data/sample_order.hpp"

#include "core/error.hpp"
#include "core/random.hpp"

#include <bit>

namespace trainstone {

namespace {

constexpr int rounds = 8;

std::uint64_t random_word(std::uint64_t key, std::uint64_t index) {
  RandomBlock const block = random_block(key, RandomStream::data_order, index);
  return block.words[0] | std::uint64_t{block.words[1]} << 32;
}

/// A bijection of the numbers of 2 * half_bits bits.
std::uint64_t feistel(std::uint64_t key, int half_bits, std::uint64_t value) {
  std::uint64_t const mask = (std::uint64_t{1} << half_bits) - 1;
  std::uint64_t left = value >> half_bits;
  std::uint64_t right = value & mask;
  for (std::uint64_t round = 0; round < rounds; ++round) {
    std::uint64_t const mixed = left ^ (random_word(key, round << 32 | right) & mask);
    left = right;
    right = mixed;
  }
  return left << half_bits | right;
}

} // namespace

std::int64_t permuted(std::uint64_t seed, std::int64_t epoch, std::int64_t n, std::int64_t i) {
  TRAINSTONE_REQUIRE(0 <= i && i < n && epoch >= 0, "place {} of {} samples in epoch {}", i, n, epoch);
  int const half_bits = (std::bit_width(static_cast<std::uint64_t>(n - 1)) + 1) / 2;
  std::uint64_t const key = random_word(seed, static_cast<std::uint64_t>(epoch));
  auto value = static_cast<std::uint64_t>(i);
  do value = feistel(key, half_bits, value);
  while (value >= static_cast<std::uint64_t>(n));
  return static_cast<std::int64_t>(value);
}

std::int64_t training_sample(std::uint64_t seed, std::int64_t n, std::int64_t step, std::int64_t global_batch,
                             std::int64_t row) {
  TRAINSTONE_REQUIRE(n >= 1 && step >= 0 && 0 <= row && row < global_batch,
                     "row {} of a global batch of {} in step {}, {} samples", row, global_batch, step, n);
  std::int64_t const g = step * global_batch + row;
  return permuted(seed, g / n, n, g % n);
}

std::int64_t steps_of_epochs(std::int64_t epochs, std::int64_t n, std::int64_t global_batch) {
  return (epochs * n + global_batch - 1) / global_batch;
}

} // namespace trainstone
