// The plan of a run against closed forms that are written down here independently of src/.

#include "train/run_plan.hpp"

#include "core/error.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

using namespace trainstone;

namespace {

RunConfig make_config(GptConfig const& model, std::int64_t sequence, BatchConfig const& batch) {
  RunConfig config;
  config.model = model;
  config.data.sequence = sequence;
  config.batch = batch;
  config.kernels.gemm = "kokkos";
  return config;
}

std::uint64_t round_up(std::uint64_t value, std::uint64_t granule) { return (value + granule - 1) / granule * granule; }

/// Elements of root and of one block, padded to ranks * 256.
std::uint64_t padded_parameters(GptConfig const& m, std::uint64_t ranks) {
  auto const h = static_cast<std::uint64_t>(m.channels), layers = static_cast<std::uint64_t>(m.layers);
  std::uint64_t const vocab = round_up(static_cast<std::uint64_t>(m.vocab), 128);
  std::uint64_t const root = vocab * h + static_cast<std::uint64_t>(m.context) * h + 2 * h;
  return round_up(root, ranks * 256) + layers * round_up(12 * h * h + 13 * h, ranks * 256);
}

} // namespace

TEST_CASE("state takes 4 + 4 + 8 bytes per padded parameter on every rank", "[train][plan]") {
  GptConfig const model = GENERATE(GptConfig{2, 3, 12, 11, 29}, GptConfig{3, 3, 36, 19, 97}, GptConfig{1, 1, 1, 1, 1});
  Rank const ranks = GENERATE(1, 2, 3, 4);
  RunPlan const plan = plan_run(make_config(model, model.context, {1, 1, ranks}), 0, ranks);
  std::uint64_t const elements = padded_parameters(model, static_cast<std::uint64_t>(ranks));
  CHECK(plan.memory_bytes()[MemoryCategory::parameters] == 4 * elements);
  CHECK(plan.memory_bytes()[MemoryCategory::gradients] == 4 * elements);
  CHECK(plan.memory_bytes()[MemoryCategory::optimizer] == 8 * elements);
}

TEST_CASE("FLOPs of a step grow with accumulation and memory does not", "[train][plan]") {
  GptConfig const model{2, 3, 12, 11, 29};
  RunPlan const once = plan_run(make_config(model, 11, {2, 1, 2}), 0, 1);
  RunPlan const four = plan_run(make_config(model, 11, {2, 4, 8}), 0, 1);
  CHECK(four.step_flops.total() == 4 * once.step_flops.total());
  CHECK(four.memory_bytes() == once.memory_bytes());
}

TEST_CASE("an unknown all-reduce is refused and the known ones are named", "[train][plan]") {
  RunConfig config = make_config({1, 1, 4, 4, 7}, 4, {1, 1, 1});
  config.comm.allreduce = "rong";
  CHECK_THROWS_AS(plan_run(config, 0, 1), InputError);
}
