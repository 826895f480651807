#pragma once

// Attention by the kernels of src/kernels/cuda, with all blocks played on the host, beside its fp64 reference.

#include "core/types.hpp"
#include "kernels/cuda/attention_work.hpp"
#include "kernels/cuda/key_mask.hpp"
#include "support/attention_problem.hpp"
#include "support/played_block.hpp"

#include <catch2/catch_test_macros.hpp>

#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace trainstone::test {

inline constexpr Dropout some_dropout{.rate = 0.2, .seed = 3, .first_sample = 5, .site = 7};

inline Cuda::KeyMask mask_of(AttentionProblem const& problem) {
  trainstone::Impl::DropoutRows const rows(problem.dropout, problem.shape.sequence, problem.shape.heads);
  return {rows, rows.scale};
}

template <class T>
std::byte* bytes(std::vector<T>& values) {
  return reinterpret_cast<std::byte*>(values.data());
}

/// All blocks of a kernel, in memory that nobody has written.
/// \param[in] play  (shared memory of a block, its number): plays its lanes
template <class Kernel, class Play>
void play_blocks(typename Kernel::Arguments const& arguments, Index heads, Index rows_of_block, Play const& play) {
  Index const blocks = heads * ((arguments.sizes.sequence + rows_of_block - 1) / rows_of_block);
  struct alignas(1024) Shared {
    std::byte bytes[Kernel::shared_bytes];
  };
  auto const shared = std::make_unique<Shared>();
  for (Index block = 0; block < blocks; ++block) {
    std::ranges::fill(shared->bytes, std::byte{0xFF}); // no number
    play.template operator()<Kernel>(arguments, std::span<std::byte>(shared->bytes), static_cast<int>(block));
  }
}

/// Forward and backward by a set of kernels.
/// \param[in] play  as of play_blocks(), a template over the kernel that plays on lanes of its type Lane
template <class Set, class T, int head_size, class Mask, class Play>
AttentionResult compute_played(AttentionProblem const& problem, Mask const& mask, Play const& play) {
  using Element = std::conditional_t<std::is_same_v<T, bf16>, Cuda::Bf16, Cuda::Fp16>;
  using Kernels = Cuda::KernelsOf<Set, Element, head_size, Mask, typename Play::Lane>;
  auto const& [batch, sequence, heads, size] = problem.shape;
  std::vector<T> qkv = stored<T>(problem.qkv), d_out = stored<T>(problem.d_out), out(d_out.size()), d_qkv(qkv.size());
  std::vector<float> log_sum_exp(static_cast<std::size_t>(problem.rows() * heads)), sums(log_sum_exp.size());
  Cuda::AttentionSizes const sizes{static_cast<int>(batch), static_cast<int>(sequence), static_cast<int>(heads),
                                   head_size, 1 / std::sqrt(static_cast<float>(head_size))};
  std::uint64_t const before = PlayedLane::multiplied();
  using Forward = typename Kernels::Forward;
  using Queries = typename Kernels::Queries;
  using Keys = typename Kernels::Keys;
  play_blocks<Forward>({sizes, bytes(qkv), bytes(out), log_sum_exp.data(), mask}, batch * heads,
                       Forward::Tiles::queries, play);
  Cuda::BackwardArguments<Mask> const backward{sizes,       bytes(qkv),   bytes(out), bytes(d_out), log_sum_exp.data(),
                                               sums.data(), bytes(d_qkv), mask};
  play_blocks<Queries>(backward, batch * heads, Queries::Tiles::queries, play);
  play_blocks<Keys>(backward, batch * heads, Keys::Tiles::keys, play);
  TensorAttentionFlops const flops = Cuda::flops_of<Set>(batch, sequence, heads, head_size, Mask::drops);
  CHECK(PlayedLane::multiplied() - before == flops.forward + flops.backward_queries + flops.backward_keys);
  return {widened(log_sum_exp), widened(out), widened(d_qkv)};
}

template <class Set, class T, int head_size, class Play>
std::string played_differences(AttentionProblem::Shape const& shape, Dropout const& dropout, Play const& play) {
  AttentionProblem const problem(shape, dropout);
  AttentionReference const expected(problem);
  AttentionResult const actual = dropout.is_on() ? compute_played<Set, T, head_size>(problem, mask_of(problem), play)
                                                 : compute_played<Set, T, head_size>(problem, Cuda::KeepsAll(), play);
  return attention_mismatches<T>(problem, expected, actual, storing_error<T>(1.0));
}

/// Empty if sums are right whose scores grow from tile to tile: tiles go by from the last key to the first one, and
/// each has weights that are e^10 as large.
template <class Set, class T, class Play>
std::string played_growth(Play const& play) {
  AttentionProblem problem({1, 200, 1, 64});
  auto const row = static_cast<std::size_t>(3 * problem.channels()),
             keys = static_cast<std::size_t>(problem.channels());
  for (std::size_t t = 0; t < 200; ++t) {
    problem.qkv[t * row] = 80;
    problem.qkv[t * row + keys] = static_cast<float>(199 - t) / 64;
  }
  AttentionReference const expected(problem);
  AttentionResult const actual = compute_played<Set, T, 64>(problem, Cuda::KeepsAll(), play);
  // Scores are sums of 64 terms that stay below 250, divided by 8.
  double const score_error = roundoff * 64 * 250 / 8, weight_error = 2 * score_error + storing_error<T>(1.0);
  std::string const not_finite =
      std::ranges::all_of(actual.d_qkv, [](double value) { return std::isfinite(value); }) ? "" : "d_qkv is not finite";
  return mismatches<double, double>(actual.log_sum_exp, expected.log_sum_exp, weight_error) +
         mismatches<double, double>(actual.out, expected.out, stored_within<T>(2 * weight_error)) + not_finite;
}

} // namespace trainstone::test
