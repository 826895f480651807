// The kernels of a planned step with their least times.

#include "report/bounds_table.hpp"

#include "support/deck_fixture.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

using namespace trainstone;
using namespace trainstone::test;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinRel;

namespace {

constexpr ComputeRates rates{1e12, 1e11};

ResolvedRun run_of(std::vector<std::string> const& keys) {
  return resolve_run(resolve(read_small(keys), 1), Topology::one_node(1));
}

BoundedKernel find(std::vector<BoundedKernel> const& kernels, std::string const& name) {
  auto const found = std::ranges::find(kernels, name, &BoundedKernel::name);
  REQUIRE(found != kernels.end());
  return *found;
}

} // namespace

TEST_CASE("the kernels of a step have the FLOPs, bytes and launches that the plan predicts", "[report]") {
  auto const keys = GENERATE(std::vector<std::string>{}, std::vector<std::string>{"model.dropout=0.1"},
                             std::vector<std::string>{"memory.recompute=full", "batch.micro=1"},
                             std::vector<std::string>{"model.attention=flash", "precision.recipe=mixed16"});
  ResolvedRun const run = run_of(keys);
  RunPlan const plan = plan_run(run, 0);
  PhaseWork all;
  std::uint64_t launches = 0;
  for (BoundedKernel const& kernel : bounded_kernels(run, plan, rates)) {
    all.flops += kernel.work.flops;
    all.bytes += kernel.work.bytes;
    launches += kernel.launches;
  }
  PhaseWork planned = update_work(plan, run.config.optimizer);
  for (Phase const phase : phases) {
    planned.flops += plan.step_work[phase].flops;
    planned.bytes += plan.step_work[phase].bytes;
  }
  CHECK(all == planned);
  // 28 per block and 10 more in each of 8 / micro micro-batches without dropout, epilogues or conversions.
  if (keys.empty()) CHECK(launches == 4 * (28 * 2 + 10) + plan.update_launches);
}

TEST_CASE("a kernel takes its FLOPs at one peak or its bytes at the other one, whichever is longer", "[report]") {
  ResolvedRun const run = run_of({});
  std::vector<BoundedKernel> const kernels = bounded_kernels(run, plan_run(run, 0), rates);
  // qkv: 4 micro-batches, 2 blocks, (32, 64) times (64, 192).
  BoundedKernel const qkv = find(kernels, "qkv forward");
  CHECK(qkv.launches == 8);
  CHECK(qkv.work.flops == 8ULL * 2 * 32 * 64 * 192);
  CHECK(qkv.work.bytes == 8ULL * 4 * (32 * 64 + 64 * 192 + 32 * 192));
  CHECK_THAT(qkv.seconds, WithinRel(8.0 * 4 * (32 * 64 + 64 * 192 + 32 * 192) / 1e11, 1e-12)); // 65 us, else 6 us
  CHECK(std::string(qkv.peak) == "bandwidth");
  std::vector<BoundedKernel> const slow = bounded_kernels(run, plan_run(run, 0), {1e10, 1e11});
  CHECK_THAT(find(slow, "qkv forward").seconds, WithinRel(8.0 * 2 * 32 * 64 * 192 / 1e10, 1e-12));
  CHECK(std::string(find(slow, "qkv forward").peak) == "gemm");
  CHECK(std::ranges::is_sorted(kernels, std::ranges::greater(), &BoundedKernel::seconds));
}

TEST_CASE("the table of least times ends with all kernels and the tokens that they leave time for", "[report]") {
  std::vector<BoundedKernel> const kernels{{"long", 3, {2000000000, 5000000}, 0.006, "gemm"},
                                           {"short", 1, {1000000000, 7000000}, 0.002, "bandwidth"}};
  std::string const text = bounds_text(kernels, {790e12, 4260e9}, 1000);
  CHECK_THAT(text, ContainsSubstring("at 790 TFLOP/s and 4260 GB/s"));
  CHECK_THAT(
      text, ContainsSubstring(
                "  long                                        3         2.00         5.00      6.000   75.0  gemm\n"));
  CHECK_THAT(text, ContainsSubstring("  all                                         4         3.00        12.00      "
                                     "8.000  100.0"));
  CHECK_THAT(text, ContainsSubstring("no more than 1.25e+05 tokens/s"));
}
