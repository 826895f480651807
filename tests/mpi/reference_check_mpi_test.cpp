// The Trainer against the float64 references, on every number of ranks that divides the batch, with every provider of
// matrix products and both kinds of attention.

#include "core/error.hpp"
#include "kernels/gemm/gemm.hpp"
#include "support/fixtures.hpp"
#include "support/world.hpp"
#include "train/verification/reference_check.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <optional>

using namespace trainstone;

namespace {

/// Of a data rank, in its one micro-batch.
Index fixture_samples(std::string const& name, Rank data_ranks) { return (name == "gpt_even" ? 4 : 8) / data_ranks; }

} // namespace

TEST_CASE("logits, loss, every gradient and ten steps stay within the bounds of fp32", "[mpi][reference]") {
  std::string const name = GENERATE("gpt_even", "gpt_odd", "gpt_batch16");
  AttentionKind const attention = GENERATE(AttentionKind::materialized, AttentionKind::flash);
  Communicator world = test::world();
  test::Fixture const fixture = test::find_fixture(name);
  std::string losses = fixture.model.string();
  losses.replace(losses.find(".model.bin"), std::string::npos, ".losses.json");
  ReferenceFiles const files{fixture.model.string(), fixture.state.string(), losses};
  for (GemmProvider provider : built_gemm_providers()) {
    if (rounds_fp32(provider)) continue; // the bounds are those of fp32
    RunConfig choices;
    choices.kernels.gemm = to_string(provider);
    choices.model_options.attention = attention;
    choices.comm.buffers = to_string(world.buffers());
    std::optional<std::vector<ReferenceRow>> rows;
    try {
      rows = compare_with_reference(ExecutionSpace(), world, files, choices);
    } catch (InputError const& error) {
      CHECK(std::string(error.what()).find("does not divide") != std::string::npos);
      continue;
    }
    CHECK(rows->size() == 22); // logits, loss, 16 gradients, losses and norms of two recipes
    for (ReferenceRow const& row : *rows) {
      INFO(name << ", " << to_string(provider) << (attention == AttentionKind::flash ? ", flash, " : ", ") << row.name
                << ": absolute " << row.max_absolute << ", relative " << row.max_relative << ", bound " << row.bound);
      CHECK(row.passed);
    }
  }
}

TEST_CASE("tensor ranks stay within the bounds of fp32, with shared positions, too", "[mpi][reference][tensor]") {
  std::string const name = GENERATE("gpt_even", "gpt_mesh");
  bool const shares = GENERATE(false, true), keeps = GENERATE(false, true);
  if (keeps && !shares) return;
  Communicator world = test::world();
  test::Fixture const fixture = test::find_fixture(name);
  std::string losses = fixture.model.string();
  losses.replace(losses.find(".model.bin"), std::string::npos, ".losses.json");
  ReferenceFiles const files{fixture.model.string(), fixture.state.string(), losses};
  for (Rank const tensor : {2, 4}) { // of 4 and 8 heads
    if (world.size() % tensor != 0) continue;
    for (Rank const chunks : {1, 2}) {
      RunConfig choices;
      choices.comm.buffers = to_string(world.buffers());
      choices.parallel.tensor = tensor;
      choices.parallel.sequence = shares;
      choices.parallel.tensor_keep_gathered = keeps;
      choices.parallel.tensor_row_chunks = shares && fixture_samples(name, world.size() / tensor) % 2 != 0 ? 1 : chunks;
      std::vector<ReferenceRow> const rows = compare_with_reference(ExecutionSpace(), world, files, choices);
      CHECK(rows.size() == 22);
      for (ReferenceRow const& row : rows) {
        INFO(name << ", " << tensor << " tensor ranks, " << row.name << ": absolute " << row.max_absolute
                  << ", relative " << row.max_relative << ", bound " << row.bound);
        CHECK(row.passed);
      }
    }
  }
}

TEST_CASE("every strategy stays within the bounds of fp32", "[mpi][reference]") {
  std::string const name = GENERATE("gpt_odd", "gpt_batch16");
  Communicator world = test::world();
  test::Fixture const fixture = test::find_fixture(name);
  std::string losses = fixture.model.string();
  losses.replace(losses.find(".model.bin"), std::string::npos, ".losses.json");
  ReferenceFiles const files{fixture.model.string(), fixture.state.string(), losses};
  std::vector<ParallelConfig> strategies{
      {.strategy = Strategy::naive},
      {.strategy = Strategy::naive, .naive_update = NaiveUpdate::main},
      {.strategy = Strategy::zero, .zero_stage = 1},
      {.strategy = Strategy::zero, .zero_stage = 2},
      {.strategy = Strategy::zero, .zero_stage = 2, .gradient_reduction = GradientReductionWay::all_reduce},
      {.strategy = Strategy::zero, .zero_stage = 3},
      {.strategy = Strategy::zero, .zero_stage = 2, .partition = StatePartition::inter_layer},
      {.strategy = Strategy::zero, .zero_stage = 3, .partition = StatePartition::inter_layer}};
  if (world.size() % 2 == 0) strategies.push_back({.strategy = Strategy::hsdp, .shard_group = 2});
  for (ParallelConfig const& parallel : strategies) {
    RunConfig choices;
    choices.comm.buffers = to_string(world.buffers());
    choices.parallel = parallel;
    choices.parallel.bucket_bytes = 8192;
    try {
      for (ReferenceRow const& row : compare_with_reference(ExecutionSpace(), world, files, choices)) {
        INFO(name << ", " << to_string(parallel.strategy) << ' ' << parallel.zero_stage << ", " << row.name
                  << ": absolute " << row.max_absolute << ", relative " << row.max_relative << ", bound " << row.bound);
        CHECK(row.passed);
      }
    } catch (InputError const& error) {
      CHECK(std::string(error.what()).find("does not divide") != std::string::npos);
    }
  }
}
