#pragma once

// The loss that a model begins with, recomputed in fp64 without ever holding the model: weights are made (or read) some
// rows at a time and dropped when they are used, so that memory is that of activations. Shares with the model the table
// of parameters and the random numbers that define them, and no kernel, no matrix product and no precision. Owns the
// bound that a training in fp32 is held to. Knows neither data nor ranks; runs on threads of its own, without Kokkos or
// MPI.

#include "model/parameter_table.hpp"

#include <cstdint>
#include <functional>
#include <span>

namespace trainstone {

/// Gives the elements [begin, begin + out.size()) of a tensor, in row-major order, as fp32. Called by several threads.
using ParameterValues = std::function<void(ParameterTensor const& tensor, std::int64_t begin, std::span<float> out)>;

/// The initial values of a training from this seed: the values of initialize_parameters (model/gpt.hpp), made anew.
ParameterValues initial_values(std::uint64_t seed);

/// Mean cross-entropy of the positions of one sample. Attention is causal: the first P tokens of a sample alone give
/// the losses of its first P positions. The same for any number of threads.
/// \param[in] tokens, targets (P)   1 <= P <= config.context
/// \throws Error if their lengths differ or do not fit, or for a token outside the vocabulary
/// Work: reference_loss_work(). Memory: 8 P (10 C + 4 rows of scores) bytes and two numbers per position and 64 tokens.
double reference_loss(GptConfig const& config, ParameterValues const& values, std::span<std::int32_t const> tokens,
                      std::span<std::int32_t const> targets, int threads);

/// The work of reference_loss().
struct ReferenceLossWork {
  double flops = 0;         ///< of products
  double random_values = 0; ///< initial values
};
ReferenceLossWork reference_loss_work(GptConfig const& config, std::int64_t positions);

/// Seconds that reference_loss() takes with initial_values() on threads like this one. Products and initial values are
/// each timed for a moment.
double predict_reference_loss_seconds(ReferenceLossWork const& work, int threads);

/// How far the loss of a forward pass in fp32 from initial values may be from it, relative to it. With u = 2^-24, a sum
/// of k products of random signs is off by sqrt(k) u of its size; 2 L branches of up to 4 C products add what they are
/// off to the residual stream, independently: sqrt(8 L C) u of it. Logits have the standard deviation s = 0.02 sqrt(C),
/// and a position's loss is the difference of two of them: sqrt(2) s times that. The sum of V exponentials, all
/// positive, adds sqrt(V) u. All positions of a sample are taken to be off alike, which they are not: that is the
/// bound's reserve.
double reference_loss_bound(GptConfig const& config);

/// Half of the spacing of fp32 numbers behind 1: what rounding brings a value off at most, relative to it.
inline constexpr double fp32_roundoff = 0x1p-24;

/// How far fp32 brings the residual stream behind all blocks off, relative to it: sqrt(8 L C) u, as above.
double stream_error_bound(GptConfig const& config);

} // namespace trainstone
