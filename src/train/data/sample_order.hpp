#pragma once

// The order of the training samples. Owns the keyed bijection that shuffles every epoch anew, and the stream that
// goes on through all epochs. Promises that the sample in a row depends on (seed, number of samples, step, global
// batch, row) and on nothing else: neither on ranks nor on what ran before. Holds no state and no table.

#include <cstdint>

namespace trainstone {

/// The place of i in the shuffled order of [0, n) in this epoch: a bijection of [0, n) for every (seed, epoch).
/// A Feistel network of eight Philox rounds on the smallest even number of bits that holds n, repeated until the
/// result is below n (cycle walking, fewer than four turns on average).
/// \throws Error unless 0 <= i < n and epoch >= 0
/// Source: Ciphers with Arbitrary Finite Domains (CT-RSA 2002), methods 2 and 3.
std::int64_t permuted(std::uint64_t seed, std::int64_t epoch, std::int64_t n, std::int64_t i);

/// The training sample in row `row` of the global batch of step `step` (from 0): with g = step * global_batch + row,
/// the sample at place g mod n of epoch g / n. g never wraps.
std::int64_t training_sample(std::uint64_t seed, std::int64_t n, std::int64_t step, std::int64_t global_batch,
                             std::int64_t row);

/// Steps that show every one of n samples at least `epochs` times: the smallest s with s * global_batch >= epochs * n.
std::int64_t steps_of_epochs(std::int64_t epochs, std::int64_t n, std::int64_t global_batch);

} // namespace trainstone
