// Attention on tensor cores, played on the host: every lane of every block, with the layouts of fragments as the
// instructions have them.

#include "core/types.hpp"
#include "kernels/cuda/attention_forward.hpp"
#include "kernels/cuda/attention_keys.hpp"
#include "kernels/cuda/attention_queries.hpp"
#include "kernels/cuda/attention_work.hpp"
#include "kernels/cuda/key_mask.hpp"
#include "support/attention_problem.hpp"
#include "support/played_block.hpp"

#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <fmt/format.h>

using namespace trainstone;
using namespace trainstone::test;

namespace {

Dropout const some_dropout{.rate = 0.2, .seed = 3, .first_sample = 5, .site = 7};

Cuda::KeyMask mask_of(AttentionProblem const& problem) {
  trainstone::Impl::DropoutRows const rows(problem.dropout, problem.shape.sequence, problem.shape.heads);
  return {rows, rows.scale};
}

template <class T>
using Element = std::conditional_t<std::is_same_v<T, bf16>, Cuda::Bf16, Cuda::Fp16>;

template <class T>
std::byte* bytes(std::vector<T>& values) {
  return reinterpret_cast<std::byte*>(values.data());
}

/// All blocks of a kernel, in memory that nobody has written.
template <class Kernel>
void play(typename Kernel::Arguments const& arguments, Index heads, Index rows_of_block) {
  Index const blocks = heads * ((arguments.sizes.sequence + rows_of_block - 1) / rows_of_block);
  struct alignas(16) Shared {
    std::byte bytes[Kernel::shared_bytes];
  };
  auto const shared = std::make_unique<Shared>();
  for (Index block = 0; block < blocks; ++block) {
    std::ranges::fill(shared->bytes, std::byte{0xFF}); // no number
    PlayedBlock(static_cast<int>(block), Kernel::Tiles::threads,
                [&](PlayedLane& lane) { Kernel(arguments, lane, shared->bytes).run(); });
  }
}

template <class T, int head_size, class Mask>
AttentionResult compute(AttentionProblem const& problem, Mask const& mask) {
  using Forward = Cuda::AttentionForward<Element<T>, head_size, Mask, PlayedLane>;
  using Queries = Cuda::AttentionQueries<Element<T>, head_size, Mask, PlayedLane>;
  using Keys = Cuda::AttentionKeys<Element<T>, head_size, Mask, PlayedLane>;
  auto const& [batch, sequence, heads, size] = problem.shape;
  std::vector<T> qkv = stored<T>(problem.qkv), d_out = stored<T>(problem.d_out), out(d_out.size()), d_qkv(qkv.size());
  std::vector<float> log_sum_exp(static_cast<std::size_t>(problem.rows() * heads)), sums(log_sum_exp.size());
  Cuda::AttentionSizes const sizes{static_cast<int>(batch), static_cast<int>(sequence), static_cast<int>(heads),
                                   head_size, 1 / std::sqrt(static_cast<float>(head_size))};
  std::uint64_t const before = PlayedLane::multiplied();
  play<Forward>({sizes, bytes(qkv), bytes(out), log_sum_exp.data(), mask}, batch * heads, Forward::Tiles::queries);
  Cuda::BackwardArguments<Mask> const backward{sizes,       bytes(qkv),   bytes(out), bytes(d_out), log_sum_exp.data(),
                                               sums.data(), bytes(d_qkv), mask};
  play<Queries>(backward, batch * heads, Queries::Tiles::queries);
  play<Keys>(backward, batch * heads, Keys::Tiles::keys);
  auto const flops = Cuda::attention_forward_flops<head_size, Mask::drops>(sequence) +
                     Cuda::attention_backward_flops<head_size, Mask::drops>(sequence);
  CHECK(PlayedLane::multiplied() - before == static_cast<std::uint64_t>(batch * heads * flops));
  return {widened(log_sum_exp), widened(out), widened(d_qkv)};
}

template <class T, int head_size>
std::string differences(Index batch, Index sequence, Index heads, Dropout const& dropout) {
  AttentionProblem const problem({batch, sequence, heads, head_size}, dropout);
  AttentionReference const expected(problem);
  AttentionResult const actual = dropout.is_on() ? compute<T, head_size>(problem, mask_of(problem))
                                                 : compute<T, head_size>(problem, Cuda::KeepsAll());
  return attention_mismatches<T>(problem, expected, actual, storing_error<T>(1.0));
}

} // namespace

TEMPLATE_TEST_CASE("attention on tensor cores equals the reference", "[tensor_cores]", bf16, fp16) {
  for (Dropout const& dropout : {Dropout{}, some_dropout}) {
    for (Index const sequence : {1, 63, 130, 200}) {
      INFO("T " << sequence << (dropout.is_on() ? ", dropout" : ""));
      CHECK(differences<TestType, 64>(1, sequence, 2, dropout) == "");
    }
    INFO((dropout.is_on() ? "dropout" : ""));
    CHECK(differences<TestType, 64>(2, 65, 1, dropout) == "");
    CHECK(differences<TestType, 80>(1, 97, 1, dropout) == "");
    CHECK(differences<TestType, 96>(1, 161, 1, dropout) == "");
    CHECK(differences<TestType, 128>(1, 135, 1, dropout) == "");
  }
}

TEMPLATE_TEST_CASE("attention on tensor cores corrects its sums as scores grow from tile to tile", "[tensor_cores]",
                   bf16, fp16) {
  AttentionProblem problem({1, 200, 1, 64});
  auto const row = static_cast<std::size_t>(3 * problem.channels()),
             keys = static_cast<std::size_t>(problem.channels());
  for (std::size_t t = 0; t < 200; ++t) { // tiles go by from the last key to the first: each has weights e^10 as large
    problem.qkv[t * row] = 80;
    problem.qkv[t * row + keys] = static_cast<float>(199 - t) / 64;
  }
  AttentionReference const expected(problem);
  AttentionResult const actual = compute<TestType, 64>(problem, Cuda::KeepsAll());
  // Scores are sums of 64 terms that stay below 250, divided by 8.
  double const score_error = roundoff * 64 * 250 / 8, weight_error = 2 * score_error + storing_error<TestType>(1.0);
  CHECK(mismatches<double, double>(actual.log_sum_exp, expected.log_sum_exp, weight_error) == "");
  CHECK(mismatches<double, double>(actual.out, expected.out, stored_within<TestType>(2 * weight_error)) == "");
  CHECK(std::ranges::all_of(actual.d_qkv, [](double value) { return std::isfinite(value); }));
}
