// What a run keeps beside its training: for files that it writes, and for validations.

#include "support/run_configs.hpp"
#include "train/plan/run_plan.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>

using namespace trainstone;
using trainstone::test::make_config;

TEST_CASE("what a run keeps for the files that it writes is planned where it is kept, and told apart",
          "[train][plan]") {
  RunConfig config = make_config({3, 3, 12, 11, 29}, 11, {2, 3, 24});
  for (Rank const rank : {0, 1}) {
    RunConfig with_files = config;
    with_files.trace = {.file = "trace.json", .events = 1000};
    with_files.model_setup.save = "model.bin";
    RunPlan const plain = plan_run(config, rank, 4), planned = plan_run(with_files, rank, 4);
    CHECK(plain.host_bytes == 0);
    std::uint64_t const trace = 1000 * 24, save = rank == 0 ? 4 << 18 : 0;
    CHECK(planned.host_bytes == trace + save);
    CategoryBytes expected = plain.memory_bytes();
    expected[MemoryCategory::buffers] += trace + save;
    CHECK(planned.memory_bytes() == expected);
    auto const bytes_of = [&](std::string const& name) {
      std::uint64_t bytes = 0;
      for (MemoryItem const& item : planned.memory)
        if (item.name == name) bytes += item.bytes;
      return bytes;
    };
    CHECK(bytes_of("trace.file") == trace);
    CHECK(bytes_of("model.save") == save);
  }
}

TEST_CASE("a validation has the memory of its micro-batches, or that of the training if this is more",
          "[train][plan]") {
  GptConfig const model{3, 2, 16, 8, 50};
  RunConfig config = make_config(model, 8, {2, 8, 32});
  RunPlan const training = plan_run(config, 0, 2);
  auto const activations = [](RunPlan const& plan) { return plan.memory_bytes()[MemoryCategory::activations]; };
  for (std::int64_t const micro : {1, 2, 4, 8, 16}) {
    config.data.validation_micro = micro;
    RunPlan const plan = plan_run(config, 0, 2);
    RunConfig alone = make_config(model, 8, {micro, 1, 2 * micro}); // keeps of every block its output
    alone.model_options.recompute = {Recompute::full};
    std::uint64_t const held_out = micro == 2 ? 0 : activations(plan_run(alone, 0, 2));
    CHECK(activations(plan) == std::max(activations(training), held_out));
    CHECK(activations(plan_memory(resolve_run(config, Topology::one_node(2)), 0)) == activations(plan));
    CHECK(plan.held_out_micro_batches == 16 / micro);
    CHECK(plan.validation_control.bytes == 8 * static_cast<std::uint64_t>(32 / micro)); // M fp64 values, both ways
    CHECK(static_cast<std::uint64_t>(16 / micro) * plan.evaluation_flops.gemm == 8 * training.evaluation_flops.gemm);
    CHECK(plan.step_flops.gemm == training.step_flops.gemm);
  }
}
