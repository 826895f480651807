// The FLOPs and kernels of a plan against closed forms that are written down here independently of src/.

#include "train/plan/run_plan.hpp"

#include "support/run_configs.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

using namespace trainstone;
using trainstone::test::make_config;

TEST_CASE("a step starts 28 L + 11 kernels per micro-batch, and three for norm and update", "[train][plan]") {
  std::uint64_t const layers = GENERATE(1, 5), rank_micro_batches = GENERATE(1, 3);
  RunConfig config =
      make_config({static_cast<Index>(layers), 3, 12, 11, 29}, 11,
                  {2, static_cast<Index>(rank_micro_batches), 2 * static_cast<Index>(rank_micro_batches)});
  RunPlan const plan = plan_run(config, 0, 1);
  CHECK(plan.step_launches == rank_micro_batches * (28 * layers + 11) + 2);
  CHECK(plan.update_launches == 1);
  CHECK(plan.evaluation_launches == 10 * layers + 5);
  config.model_options.dropout = 0.1;
  CHECK(plan_run(config, 0, 1).step_launches == plan.step_launches + rank_micro_batches * (4 * layers + 2));
}

TEST_CASE("the norm's tree takes a second kernel for a group of more than 2^20 elements", "[train][plan]") {
  auto const launches = [](Index vocab) {
    return plan_run(make_config({2, 2, 16, 16, vocab}, 11, {1, 1, 1}), 0, 1).step_launches;
  };
  CHECK(launches(1 << 16) == launches(128));
  CHECK(launches((1 << 16) + 128) == launches(128) + 1);
}

TEST_CASE("an update starts a kernel for every 128 pieces of matrices and of other tensors", "[train][plan]") {
  auto const launches = [](Index slices, Index layers) {
    RunConfig config = make_config({layers, 8, 128, 16, 512}, 11, {1, 1, 1});
    config.parallel.tensor_blocks = slices;
    return plan_run(config, 0, 1).update_launches;
  };
  // Of a block: the tensors that are whole, and of each slice two matrices, a bias, two matrices, of which the second
  // is behind a bias. No slice ends at a multiple of 256.
  CHECK(launches(8, 3) == 1); // 3 blocks of 1 + 8 * 5 pieces, two tables, the final norm: 126
  CHECK(launches(8, 4) == 2); // 167
  CHECK(launches(8, 6) == 2); // 249
  CHECK(launches(8, 7) == 3); // 290
}

TEST_CASE("all blocks but the last one compute again: 8 kernels and 16 n h^2 FLOPs each, or one kernel",
          "[train][plan]") {
  std::uint64_t const layers = GENERATE(1, 2, 5), rank_micro_batches = GENERATE(1, 3), n = 2 * 11, h = 12;
  RunConfig config =
      make_config({static_cast<Index>(layers), 3, 12, 11, 29}, 11,
                  {2, static_cast<Index>(rank_micro_batches), 2 * static_cast<Index>(rank_micro_batches)});
  RunPlan const none = plan_run(config, 0, 1);
  std::uint64_t const times = rank_micro_batches * (layers - 1);
  std::uint64_t const scores = 2 * 2 * 3 * 4 * 11 * 12 / 2; // a product: 2 samples, 3 heads of 4, 11 x 12 / 2 pairs
  config.model_options.recompute = {Recompute::full};
  RunPlan const full = plan_run(config, 0, 1);
  CHECK(full.step_launches == none.step_launches + 8 * times);
  CHECK(full.step_flops.gemm == none.step_flops.gemm + times * 16 * n * h * h);
  CHECK(full.step_flops.attention == none.step_flops.attention + times * 2 * scores);
  CHECK(full.evaluation_launches == none.evaluation_launches);
  CHECK(full.model_gemm_flops == none.step_flops.gemm);
  config.model_options.dropout = 0.1;
  CHECK(plan_run(config, 0, 1).step_launches == full.step_launches + rank_micro_batches * (4 * layers + 2) + times);
  config.model_options.dropout = 0;
  config.model_options.recompute = {Recompute::selective};
  RunPlan const selective = plan_run(config, 0, 1);
  CHECK(selective.step_launches == none.step_launches + times);
  CHECK(selective.step_flops.gemm == none.step_flops.gemm);
  CHECK(selective.step_flops.attention == none.step_flops.attention + times * scores);
}

TEST_CASE("collectives add a kernel per reduction of a ring, and per group whose shares lie apart", "[train][plan]") {
  Index const layers = 3;
  Rank const ranks = GENERATE(2, 4, 7);
  auto const plan_of = [&](Rank of, ParallelConfig const& parallel) {
    RunConfig config = make_config({layers, 3, 12, 11, 29}, 11, {2, 3, 6 * of});
    config.parallel = parallel;
    return plan_run(config, 0, of);
  };
  auto const reductions = static_cast<std::uint64_t>(ranks - 1);
  Granularity const granularity = GENERATE(Granularity::bucket, Granularity::step);
  ParallelConfig const ddp{.granularity = granularity, .bucket_bytes = 1e3, .first_bucket_bytes = 1e3};
  RunPlan const plan = plan_of(ranks, ddp);
  auto const buckets = static_cast<std::uint64_t>(plan.parallel.reductions.buckets.buckets());
  CHECK((buckets > 1) == (granularity == Granularity::bucket));
  CHECK(plan.step_launches == plan_of(1, ddp).step_launches + reductions * buckets);
  ParallelConfig const zero{
      .strategy = Strategy::zero, .zero_stage = 1, .bucket_bytes = 1e9, .first_bucket_bytes = 1e9};
  std::uint64_t const groups = layers + 3, joint = 2, apart = 3 * groups; // kernels of the norm; root has three groups
  CHECK(plan_of(ranks, zero).step_launches == plan_of(1, zero).step_launches + reductions * groups + apart - joint);
  ParallelConfig fsdp = zero;
  fsdp.zero_stage = 3; // gradients and parameters of a rank are its shares, side by side
  CHECK(plan_of(ranks, fsdp).update_launches == 1);
}

TEST_CASE("products of a step read and write each operand once: bytes by hand", "[train][plan]") {
  std::uint64_t const layers = 2, h = 12, n = 2 * 11, vocab = 128;
  RunPlan const plan = plan_run(make_config({static_cast<Index>(layers), 3, 12, 11, 29}, 11, {2, 1, 2}), 0, 1);
  CHECK(plan.step_work[Phase::gemm].flops == plan.step_flops.gemm);
  CHECK(plan.step_work[Phase::attention].flops == plan.step_flops.attention);
  // a product and the two of its backward have the same three operands
  auto const linear = [&](std::uint64_t in, std::uint64_t out) { return n * in + in * out + n * out; };
  std::uint64_t const of_block = linear(h, 3 * h) + linear(h, h) + linear(h, 4 * h) + linear(4 * h, h);
  CHECK(plan.step_work[Phase::gemm].bytes == 3 * 4 * (layers * of_block + linear(h, vocab)));
  CHECK(plan.evaluation_work[Phase::gemm].bytes == 4 * (layers * of_block + linear(h, vocab)));
  CHECK(plan.step_work[Phase::optimizer] == PhaseWork{});
}

TEST_CASE("FLOPs of a step grow with accumulation, memory by the tokens alone", "[train][plan]") {
  GptConfig const model{2, 3, 12, 11, 29};
  RunPlan const once = plan_run(make_config(model, 11, {2, 1, 2}), 0, 1);
  RunPlan const four = plan_run(make_config(model, 11, {2, 4, 8}), 0, 1);
  CHECK(four.step_flops.total() == 4 * once.step_flops.total());
  std::uint64_t const arrays = 4 * memory_footprint(4 * 4 * 22), buckets = memory_footprint(4 * 4 * 23);
  CategoryBytes expected = once.memory_bytes();
  expected[MemoryCategory::data] = arrays + buckets;
  CHECK(four.memory_bytes() == expected);
}
