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

TEST_CASE("data parallelism sends 2 (N-1)/N of the gradients in 2 (N-1) messages per group", "[train][plan]") {
  GptConfig const model = GENERATE(GptConfig{2, 3, 12, 11, 29}, GptConfig{3, 3, 36, 19, 97});
  Rank const ranks = GENERATE(1, 2, 3, 4, 8);
  for (Rank rank = 0; rank < ranks; ++rank) {
    RunPlan const plan = plan_run(make_config(model, model.context, {1, 2, 2 * ranks}), rank, ranks);
    auto const n = static_cast<std::uint64_t>(ranks);
    CHECK(plan.gradients.bytes == 2 * (n - 1) * padded_parameters(model, n) / n * 4);
    CHECK(plan.gradients.messages == 2 * (n - 1) * static_cast<std::uint64_t>(model.layers + 1));
  }
}

TEST_CASE("the loss costs one value around the ring: 2 (N-1) messages of 8 bytes over all ranks", "[train][plan]") {
  Rank const ranks = GENERATE(1, 2, 3, 4);
  std::uint64_t messages = 0, bytes = 0;
  for (Rank rank = 0; rank < ranks; ++rank) {
    Traffic const control = plan_run(make_config({1, 1, 4, 4, 7}, 4, {1, 1, ranks}), rank, ranks).step_control;
    messages += control.messages;
    bytes += control.bytes;
  }
  CHECK(messages == 2 * static_cast<std::uint64_t>(ranks - 1));
  CHECK(bytes == 8 * messages);
}

TEST_CASE("ranks inside the ring pass the loss on twice, its first and last rank once", "[train][plan]") {
  Rank const ranks = GENERATE(2, 3, 4, 7);
  for (Rank rank = 0; rank < ranks; ++rank) {
    bool const inside = rank > 0 && rank < ranks - 1;
    Traffic const control = plan_run(make_config({1, 1, 4, 4, 7}, 4, {1, 1, ranks}), rank, ranks).step_control;
    CHECK(control.messages == (inside ? 2u : 1u));
  }
}

TEST_CASE("buffers and data add up to the closed form", "[train][plan]") {
  GptConfig const model = GENERATE(GptConfig{2, 3, 12, 11, 29}, GptConfig{3, 3, 36, 19, 97});
  Rank const ranks = GENERATE(1, 2, 3, 4);
  auto const n = static_cast<std::uint64_t>(ranks), h = static_cast<std::uint64_t>(model.channels);
  auto const layers = static_cast<std::uint64_t>(model.layers), t = static_cast<std::uint64_t>(model.context);
  std::uint64_t const root =
      round_up(round_up(static_cast<std::uint64_t>(model.vocab), 128) * h + t * h + 2 * h, n * 256);
  std::uint64_t const largest = std::max(root, round_up(12 * h * h + 13 * h, n * 256));
  RunPlan const plan = plan_run(make_config(model, model.context, {2, 1, 2 * ranks}), 0, ranks);
  std::uint64_t const scratch = ranks == 1 ? 0 : 4 * largest / n; // one block of the ring
  std::uint64_t const norm = round_up(8 * largest / 256, 64) + round_up(8 * (layers + 1), 64);
  CHECK(plan.memory_bytes()[MemoryCategory::buffers] == scratch + norm + 64 + 64); // a count and the loss's sum
  std::uint64_t const rows = 2 * t;
  CHECK(plan.memory_bytes()[MemoryCategory::data] == 4 * round_up(4 * rows, 64) + round_up(4 * (rows + 1), 64));
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
