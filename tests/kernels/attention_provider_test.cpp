// The providers of attention: which one a build takes, what they declare, and that each of them computes attention. In
// CUDA builds these are several.

#include "kernels/attention/attention_provider.hpp"

#include "core/counters.hpp"
#include "core/error.hpp"
#include "core/launch.hpp"
#include "kernels/attention/attend.hpp"
#include "kernels/cuda/tensor_attention.hpp"
#include "support/attention_problem.hpp"
#include "support/storage.hpp"
#include "support/views.hpp"

#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

using namespace trainstone;
using namespace trainstone::test;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

namespace {

using enum AttentionProvider;

constexpr std::array host_build{flash};
constexpr std::array cuda_build{tensor_cores, flash};
constexpr std::array full_build{tensor_cores, flash, wgmma, cudnn}; // for sm_90, and with cuDNN

using Pass = AttentionPass;

constexpr AttentionNeed call{2, 200, 3, 64, Storage::bf16};

constexpr AttentionNeed with(Storage storage, Index head_size, bool drops = false) {
  return {call.batch, call.sequence, call.heads, head_size, storage, drops};
}

template <class T>
AttentionNeed need_of(AttentionProblem::Shape const& shape, Dropout const& dropout) {
  auto const& [batch, sequence, heads, size] = shape;
  return {batch, sequence, heads, size, storage_of<T>(), dropout.is_on()};
}

Dropout const some_dropout{.rate = 0.2, .seed = 3, .first_sample = 5, .site = 7};

/// Forward and backward of a provider that can compute the problem.
/// \param[in] missing  numbers of scratch that are not there
template <class T>
AttentionResult compute(AttentionProvider provider, AttentionProblem const& problem, Index missing = 0) {
  ExecutionSpace const exec;
  auto const& [batch, sequence, heads, size] = problem.shape;
  Index const rows = problem.rows(), channels = problem.channels();
  DeviceTensor<T> const qkv(stored<T>(problem.qkv)), d_out(stored<T>(problem.d_out)),
      out(rows * channels, from_float<T>(9.0F)), d_qkv(rows * 3 * channels, from_float<T>(9.0F));
  auto const scratch = [&](Pass pass) {
    Index const needed = attention_scratch(provider, pass, need_of<T>(problem.shape, problem.dropout));
    return DeviceTensor<float>(std::max<Index>(needed - missing, 0), std::nanf(""));
  };
  DeviceTensor<float> const log_sum_exp(rows * heads, 9.0F), ahead = scratch(Pass::forward),
                                                             back = scratch(Pass::backward);
  Matrix<T const> const qkv_rows = qkv.matrix(rows, 3 * channels);
  Matrix<T> const out_rows = out.matrix(rows, channels);
  attend_forward<T>(exec, provider, qkv_rows, batch, heads, problem.dropout, ahead.vector(), log_sum_exp.vector(),
                    out_rows);
  attend_backward<T>(exec, provider, qkv_rows, batch, heads, problem.dropout, log_sum_exp.vector(), out_rows,
                     d_out.matrix(rows, channels), back.vector(), d_qkv.matrix(rows, 3 * channels));
  return {widened(log_sum_exp.values()), widened(out.values()), widened(d_qkv.values())};
}

/// body(provider) of this build's that can compute it.
template <class Body>
void for_each_provider(AttentionNeed const& need, Body const& body) {
  for (AttentionProvider const provider : built_attention_providers()) {
    if (!attention_problem(provider, need).empty()) continue;
    INFO(fmt::format("{}, heads of {} channels{}", to_string(provider), need.head_size, need.drops ? ", dropout" : ""));
    body(provider);
  }
}

bool is_built(AttentionProvider provider) {
  auto const built = built_attention_providers();
  return std::ranges::find(built, provider) != built.end();
}

/// Relative error of weights that a provider rounds before it multiplies them.
template <class T>
double narrow(AttentionProvider provider) {
  return provider == flash ? 0 : storing_error<T>(1.0);
}

bool same(AttentionResult const& a, AttentionResult const& b) {
  return a.log_sum_exp == b.log_sum_exp && a.out == b.out && a.d_qkv == b.d_qkv;
}

} // namespace

TEST_CASE("automatic attention is on tensor cores where a build has them and they take heads and values") {
  auto const chosen = [](auto const& build, Storage storage, Index head_size) {
    return resolve_attention_provider("auto", with(storage, head_size), build);
  };
  for (Storage const storage : {Storage::bf16, Storage::fp16}) {
    for (Index const head_size : {64, 80, 96, 128}) {
      CHECK(chosen(cuda_build, storage, head_size) == tensor_cores);
      CHECK(chosen(host_build, storage, head_size) == flash);
    }
    for (Index const head_size : {1, 32, 63, 65, 72, 112, 256}) CHECK(chosen(cuda_build, storage, head_size) == flash);
  }
  CHECK(chosen(cuda_build, Storage::fp32, 64) == flash);
  CHECK(resolve_attention_provider("flash", call, cuda_build) == flash);
  CHECK(resolve_attention_provider("tensor_cores", call, cuda_build) == tensor_cores);
}

TEST_CASE("attention by cuDNN and by products of warpgroups is taken by name alone") {
  auto const chosen = [](std::string_view name, Storage storage, Index head_size) {
    return resolve_attention_provider(name, with(storage, head_size), full_build);
  };
  for (Storage const storage : {Storage::bf16, Storage::fp16}) {
    for (Index const head_size : {64, 80, 96, 128}) CHECK(chosen("auto", storage, head_size) == tensor_cores);
    for (Index const head_size : {8, 16, 72, 112, 120}) CHECK(chosen("auto", storage, head_size) == flash);
    for (Index const head_size : {8, 16, 64, 72, 112, 120, 128}) CHECK(chosen("cudnn", storage, head_size) == cudnn);
    if (is_built(wgmma)) continue; // which asks the device
    for (Index const head_size : {64, 80, 96, 128}) CHECK(chosen("wgmma", storage, head_size) == wgmma);
  }
}

TEST_CASE("a provider of attention that cannot compute is refused with what can") {
  auto const resolve = [](std::string_view name, Storage storage, Index head_size, auto const& build) {
    return resolve_attention_provider(name, with(storage, head_size), build);
  };
  CHECK_THROWS_MATCHES(resolve("tensor_cores", Storage::bf16, 64, host_build), InputError,
                       MessageMatches(ContainsSubstring("no provider of attention tensor_cores; it has flash")));
  CHECK_THROWS_MATCHES(resolve("cudnn", Storage::bf16, 64, cuda_build), InputError,
                       MessageMatches(ContainsSubstring("it has tensor_cores, flash")));
  CHECK_THROWS_MATCHES(resolve("tensor_cores", Storage::fp32, 64, cuda_build), InputError,
                       MessageMatches(ContainsSubstring("values of 16 bits, not fp32")));
  CHECK_THROWS_MATCHES(resolve("tensor_cores", Storage::fp16, 72, cuda_build), InputError,
                       MessageMatches(ContainsSubstring("64, 80, 96 or 128 channels, not of 72")));
  CHECK_THROWS_MATCHES(resolve("wgmma", Storage::bf16, 64, host_build), InputError,
                       MessageMatches(ContainsSubstring("no provider of attention wgmma; it has flash")));
  CHECK_THROWS_MATCHES(resolve("wgmma", Storage::fp32, 64, full_build), InputError,
                       MessageMatches(ContainsSubstring("values of 16 bits, not fp32")));
  CHECK_THROWS_MATCHES(resolve("wgmma", Storage::fp16, 72, full_build), InputError,
                       MessageMatches(ContainsSubstring("64, 80, 96 or 128 channels, not of 72")));
  CHECK_THROWS_MATCHES(resolve("no such", Storage::bf16, 64, full_build), InputError,
                       MessageMatches(ContainsSubstring("it has tensor_cores, flash, wgmma, cudnn")));
}

TEST_CASE("products of warpgroups are refused on devices that do not have them") {
  CHECK(wgmma_device_problem("NVIDIA H200", 9, 0) == "");
  CHECK(wgmma_device_problem("NVIDIA A100", 8, 0) ==
        "products of warpgroups need a device of compute capability 9.0, and this one is of 8.0: NVIDIA A100");
  CHECK_THAT(wgmma_device_problem("NVIDIA B200", 10, 0), ContainsSubstring("is of 10.0: NVIDIA B200"));
  CHECK_THAT(wgmma_device_problem("another", 9, 1), ContainsSubstring("is of 9.1"));
}

TEST_CASE("attention by cuDNN is refused with what it takes") {
  auto const problem = [](AttentionNeed const& need) { return attention_problem(cudnn, need); };
  CHECK_THAT(problem(with(Storage::fp32, 64)), ContainsSubstring("16 bits, not fp32"));
  for (Index const head_size : {1, 4, 12, 63, 65, 100, 132, 136, 256})
    CHECK_THAT(problem(with(Storage::bf16, head_size)),
               ContainsSubstring(fmt::format("8, 16, .. 128 channels, not of {}", head_size)));
  CHECK_THAT(problem(with(Storage::fp16, 64, true)), ContainsSubstring("no dropout"));
  for (Index const sequence : {0, 1, 2, 3, 1024}) {
    std::string const found = problem({2, sequence, 3, 64, Storage::bf16});
    CHECK_THAT(found, sequence == 1 ? ContainsSubstring("one position") : ContainsSubstring(""));
    CHECK(found.empty() == (sequence != 1));
  }
  CHECK_THROWS_MATCHES(resolve_attention_provider("cudnn", with(Storage::bf16, 64, true), full_build), InputError,
                       MessageMatches(ContainsSubstring("kernels.attention = \"cudnn\"")));
}

TEST_CASE("every build has flash attention, and names what it has") {
  auto const built = built_attention_providers();
  std::vector<AttentionProvider> expected(full_build.begin(), full_build.end());
  if (host_reaches_memory) expected.assign(host_build.begin(), host_build.end());
  for (AttentionProvider const optional : {wgmma, cudnn})
    if (!is_built(optional)) std::erase(expected, optional);
  CHECK(std::ranges::equal(built, expected));
  for (AttentionProvider const provider : {tensor_cores, wgmma, cudnn}) {
    AttentionProblem const problem({1, 2, 1, 64});
    if (!is_built(provider)) CHECK_THROWS_AS(compute<bf16>(provider, problem), Error);
    CHECK_THROWS_AS(compute<float>(provider, problem), Error); // in any build
  }
}

TEST_CASE("attention on tensor cores declares the fragments of its three kernels") {
  // of a head of 64 channels, 200 positions in two tiles of 128 queries, by warp of 32 queries: the keys until its last
  // one, in tiles of 64, or of 32 backward
  std::uint64_t const forward = 32 * (64 + 64 + 128 + 128) + 32 * (192 + 192 + 256 + 256);
  std::uint64_t const queries = 32 * (32 + 64 + 96 + 128) + 32 * (160 + 192 + 224 + 256);
  // by warp of 32 keys: the queries from its first one, up to 256
  std::uint64_t const keys = 32 * (256 + 224 + 192 + 160) + 32 * (128 + 96 + 64 + 32);
  std::uint64_t const of_product = 2 * 64 * 2 * 3; // 2 FLOP for a channel of each of 2 x 3 heads
  std::uint64_t const rows = 2 * 200, values = rows * 3 * 64 * 2, numbers = rows * 3 * 4;
  for (bool const drops : {false, true}) {
    auto const ahead = attention_kernels(tensor_cores, Pass::forward, with(Storage::bf16, 64, drops));
    auto const back = attention_kernels(tensor_cores, Pass::backward, with(Storage::fp16, 64, drops));
    REQUIRE((ahead.size() == 1 && back.size() == 2));
    CHECK(ahead[0].name == std::string("tensor_attention::forward"));
    CHECK(ahead[0].flops == 2 * forward * of_product);
    CHECK(ahead[0].bytes == 4 * values + numbers);
    CHECK(back[0].name == std::string("tensor_attention::backward_queries"));
    CHECK(back[0].flops == 3 * queries * of_product);
    CHECK(back[0].bytes == 6 * values + 2 * numbers);
    CHECK(back[1].name == std::string("tensor_attention::backward_keys"));
    CHECK(back[1].flops == 4 * keys * of_product); // with dropout by 16 queries, which is no less here
    CHECK(back[1].bytes == 6 * values + 2 * numbers);
  }
  CHECK_THROWS_AS(attention_kernels(tensor_cores, Pass::forward, with(Storage::bf16, 72)), Error);
}

TEST_CASE("attention by products of warpgroups declares the tiles of its three kernels") {
  // of a head of 64 channels, 200 positions: each 64 queries with the keys until their last one, in tiles of 64; keys
  // with the queries from their first one, up to 256. Dropout goes by 32 of a tile, which is no less here.
  std::uint64_t const pairs = 64 * (64 + 128 + 192 + 256);
  std::uint64_t const of_product = 2 * 64 * 2 * 3; // 2 FLOP for a channel of each of 2 x 3 heads
  std::uint64_t const rows = 2 * 200, values = rows * 3 * 64 * 2, numbers = rows * 3 * 4;
  for (bool const drops : {false, true}) {
    auto const ahead = attention_kernels(wgmma, Pass::forward, with(Storage::bf16, 64, drops));
    auto const back = attention_kernels(wgmma, Pass::backward, with(Storage::fp16, 64, drops));
    REQUIRE((ahead.size() == 1 && back.size() == 2));
    CHECK(ahead[0].name == std::string("wgmma_attention::forward"));
    CHECK(ahead[0].flops == 2 * pairs * of_product);
    CHECK(ahead[0].bytes == 4 * values + numbers);
    CHECK(back[0].name == std::string("wgmma_attention::backward_queries"));
    CHECK(back[0].flops == 3 * pairs * of_product);
    CHECK(back[0].bytes == 6 * values + 2 * numbers);
    CHECK(back[1].name == std::string("wgmma_attention::backward_keys"));
    CHECK(back[1].flops == 4 * pairs * of_product);
    CHECK(back[1].bytes == 6 * values + 2 * numbers);
  }
  CHECK_THROWS_AS(attention_kernels(wgmma, Pass::backward, with(Storage::bf16, 72)), Error);
}

TEST_CASE("flash attention declares one kernel forward and one backward") {
  std::uint64_t const rows = 2 * 200, values = rows * 3 * 64 * 2, numbers = rows * 3 * 4;
  auto const ahead = attention_kernels(flash, Pass::forward, call);
  auto const back = attention_kernels(flash, Pass::backward, with(Storage::bf16, 64, true));
  REQUIRE((ahead.size() == 1 && back.size() == 1));
  CHECK(ahead[0].name == std::string("flash_attention::forward"));
  CHECK(ahead[0].bytes == 4 * values + numbers);
  CHECK(back[0].name == std::string("flash_attention::backward"));
  CHECK(back[0].bytes == 8 * values + numbers);
  CHECK(2 * back[0].flops == (host_reaches_memory ? 5 : 7) * ahead[0].flops);
}

TEST_CASE("attention by cuDNN declares the model's work: two products forward, five backward, below the diagonal") {
  std::uint64_t const pairs = 2 * 3 * (200 * 201 / 2), of_product = 2 * 64 * pairs;
  std::uint64_t const rows = 2 * 200, values = rows * 3 * 64 * 2, numbers = rows * 3 * 4;
  auto const ahead = attention_kernels(cudnn, Pass::forward, call);
  auto const back = attention_kernels(cudnn, Pass::backward, with(Storage::fp16, 64));
  REQUIRE((ahead.size() == 1 && back.size() == 1));
  CHECK(ahead[0].name == std::string("cudnn_attention::forward[cuDNN]"));
  CHECK(ahead[0].flops == 2 * of_product);
  CHECK(ahead[0].bytes == 4 * values + numbers);
  CHECK(back[0].name == std::string("cudnn_attention::backward[cuDNN]"));
  CHECK(back[0].flops == 5 * of_product);
  CHECK(back[0].bytes == 8 * values + numbers);
}

TEST_CASE("attention by cuDNN needs a workspace in both passes, which is what graphs of cuDNN asked for") {
  CHECK(needs_attention_scratch(cudnn, Pass::forward));
  CHECK(attention_scratch(cudnn, Pass::forward, call) == 256 / 4);
  CHECK(needs_attention_scratch(cudnn, Pass::backward));
  // bytes that graphs of cuDNN 9.19 for compute capability 9.0 asked for, which were built without a device: batch,
  // positions, heads, channels; the plan has two lengths per sequence more, which versions until 9.15 asked for
  struct {
    Index batch, sequence, heads, size, bytes;
  } const asked[] = {{3, 2, 1, 8, 49432},     {8, 17, 12, 8, 1579648},    {2, 64, 1, 8, 33536},
                     {1, 65, 12, 8, 396592},  {3, 128, 25, 8, 2496256},   {16, 129, 1, 8, 1581376},
                     {1, 130, 2, 64, 197904}, {2, 1024, 12, 64, 50430208}};
  for (auto const& [batch, sequence, heads, size, bytes] : asked) {
    INFO(fmt::format("{} x {} positions, {} heads", batch, sequence, heads));
    CHECK(4 * attention_scratch(cudnn, Pass::backward, {batch, sequence, heads, size, Storage::bf16}) ==
          bytes + 2 * 4 * batch);
  }
  // with cuDNN 9.13: 3 sequences of 130 positions, a head of 128
  CHECK(4 * attention_scratch(cudnn, Pass::backward, {3, 130, 1, 128, Storage::fp16}) == 296752);
  // 1,000 positions are 16 tiles of 64 positions and 8 of 128 keys
  CHECK(attention_scratch(cudnn, Pass::backward, {5, 1000, 7, 80, Storage::bf16}) ==
        5 * 7 * (1024 * 1024 / 2 + 1000) + 2 * 5 + 64);
}

TEST_CASE("attention on tensor cores needs a number per query and head backward, flash attention nothing") {
  for (AttentionProvider const provider : {tensor_cores, wgmma}) {
    CHECK(needs_attention_scratch(provider, Pass::backward));
    CHECK(attention_scratch(provider, Pass::backward, call) == 2 * 3 * 200);
    CHECK_FALSE(needs_attention_scratch(provider, Pass::forward));
    CHECK(attention_scratch(provider, Pass::forward, call) == 0);
  }
  for (Pass const pass : {Pass::forward, Pass::backward}) {
    CHECK_FALSE(needs_attention_scratch(flash, pass));
    CHECK(attention_scratch(flash, pass, call) == 0);
  }
}

TEMPLATE_LIST_TEST_CASE("attention by every provider of the build equals the reference", "", StorageTypes) {
  using T = TestType;
  for (Dropout const& dropout : {Dropout{}, some_dropout})
    for (Index const sequence : {1, 17, 130, 200})
      for (Index const head_size : {64, 80, 96, 128}) {
        AttentionProblem const problem({sequence < 100 ? 2 : 1, sequence, 2, head_size}, dropout);
        AttentionReference const expected(problem);
        INFO(fmt::format("T {}", sequence));
        for_each_provider(need_of<T>(problem.shape, dropout), [&](AttentionProvider provider) {
          CHECK(attention_mismatches<T>(problem, expected, compute<T>(provider, problem), narrow<T>(provider)) == "");
        });
      }
}

TEMPLATE_LIST_TEST_CASE("attention by every provider has the same bits in every run and in any batch", "",
                        StorageTypes) {
  using T = TestType;
  for (Dropout const& dropout : {Dropout{}, some_dropout}) {
    AttentionProblem const all({2, 70, 2, 64}, dropout);
    AttentionProblem last({1, 70, 2, 64}, dropout);
    last.dropout.first_sample += 1;
    std::copy_n(all.qkv.end() - std::ssize(last.qkv), last.qkv.size(), last.qkv.begin());
    std::copy_n(all.d_out.end() - std::ssize(last.d_out), last.d_out.size(), last.d_out.begin());
    for_each_provider(need_of<T>(all.shape, dropout), [&](AttentionProvider provider) {
      AttentionResult const together = compute<T>(provider, all);
      CHECK(same(together, compute<T>(provider, all)));
      AttentionResult const alone = compute<T>(provider, last);
      CHECK(std::equal(alone.out.rbegin(), alone.out.rend(), together.out.rbegin()));
      CHECK(std::equal(alone.d_qkv.rbegin(), alone.d_qkv.rend(), together.d_qkv.rbegin()));
    });
  }
}

TEMPLATE_LIST_TEST_CASE("attention by every provider takes no sequences and empty ones", "", StorageTypes) {
  for (Dropout const& dropout : {Dropout{}, some_dropout})
    for (auto const& [batch, sequence] : {std::pair<Index, Index>{0, 4}, {2, 0}}) {
      AttentionProblem const problem({batch, sequence, 2, 64}, dropout);
      for_each_provider(need_of<TestType>(problem.shape, dropout),
                        [&](AttentionProvider provider) { CHECK(compute<TestType>(provider, problem).out.empty()); });
    }
}

TEMPLATE_LIST_TEST_CASE("attention by every provider takes no less scratch than it needs", "", StorageTypes) {
  AttentionProblem const problem({1, 9, 2, 64});
  for_each_provider(need_of<TestType>(problem.shape, {}), [&](AttentionProvider provider) {
    if (needs_attention_scratch(provider, Pass::forward) || needs_attention_scratch(provider, Pass::backward))
      CHECK_THROWS_MATCHES(compute<TestType>(provider, problem, 1), Error,
                           MessageMatches(ContainsSubstring("numbers of scratch")));
    else
      CHECK(same(compute<TestType>(provider, problem, 1), compute<TestType>(provider, problem)));
  });
}

TEMPLATE_LIST_TEST_CASE("attention by every provider starts the kernels that it declares", "", StorageTypes) {
  using T = TestType;
  for (Dropout const& dropout : {Dropout{}, some_dropout})
    for (Index const head_size : {64, 128}) {
      AttentionProblem const problem({2, 150, 3, head_size}, dropout);
      AttentionNeed const need = need_of<T>(problem.shape, dropout);
      for_each_provider(need, [&](AttentionProvider provider) {
        std::vector<AttentionKernel> declared = attention_kernels(provider, Pass::forward, need);
        std::ranges::copy(attention_kernels(provider, Pass::backward, need), std::back_inserter(declared));
        KernelTable counted;
        {
          ThreadKernelTable const counting(&counted);
          compute<T>(provider, problem);
        }
        CHECK(counted.size() == declared.size());
        for (auto const& [name, flops, bytes] : declared) {
          INFO(name);
          auto const found = counted.find(std::string("trainstone::") + name);
          REQUIRE(found != counted.end());
          CHECK(found->second.launches == 1);
          CHECK(found->second.flops == flops);
          CHECK(found->second.bytes == bytes);
        }
      });
    }
}
