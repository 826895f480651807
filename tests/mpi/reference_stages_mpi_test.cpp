// Training on the stages of a pipeline against the float64 references, with every schedule that a model can have.

#include "core/error.hpp"
#include "model/llmc/llmc_files.hpp"
#include "parallel/pipeline/pipeline_schedules.hpp"
#include "parallel/plan/pipeline_problems.hpp"
#include "support/fixtures.hpp"
#include "support/world.hpp"
#include "train/verification/reference_check.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <string>
#include <vector>

using namespace trainstone;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr Rank most_ranks = 4;

ReferenceFiles files_of(std::string const& name) {
  test::Fixture const fixture = test::find_fixture(name);
  std::string losses = fixture.model.string();
  losses.replace(losses.find(".model.bin"), std::string::npos, ".losses.json");
  return {fixture.model.string(), fixture.state.string(), losses};
}

/// With one or two chunks.
std::vector<ParallelConfig> legal_schedules(ReferenceFiles const& files, Rank stages, Index data_ranks) {
  LlmcShape const shape = LlmcModelReader(files.model).shape();
  Index const samples = LlmcStateReader(files.state, shape).batch() / data_ranks;
  std::vector<ParallelConfig> all;
  for (PipelineSchedule const& schedule : pipeline_schedules())
    for (std::int64_t const chunks : {1, 2}) {
      ParallelConfig parallel;
      parallel.pipeline = stages;
      parallel.pipeline_schedule = schedule.name;
      parallel.pipeline_chunks = chunks;
      if (!find_pipeline_problem(parallel, stages * data_ranks, shape.layers, samples)) all.push_back(parallel);
    }
  return all;
}

void check_reference(Communicator& world, ReferenceFiles const& files, ParallelConfig const& parallel) {
  RunConfig choices;
  choices.comm.buffers = to_string(world.buffers());
  choices.parallel = parallel;
  choices.parallel.bucket_bytes = 8192;
  std::vector<ReferenceRow> const rows = compare_with_reference(ExecutionSpace(), world, files, choices);
  CHECK(rows.size() == 22); // logits, loss, 16 gradients, losses and norms of two recipes
  for (ReferenceRow const& row : rows) {
    INFO(files.model << ", " << parallel.pipeline << " stages, " << parallel.pipeline_schedule << ' '
                     << parallel.pipeline_chunks << ", stage " << parallel.zero_stage << " of ZeRO, " << row.name
                     << ": absolute " << row.max_absolute << ", relative " << row.max_relative << ", bound "
                     << row.bound);
    CHECK(row.passed);
  }
}

} // namespace

TEST_CASE("with every schedule, stages stay within the bounds of fp32", "[mpi][reference][pipeline]") {
  std::string const name = GENERATE("gpt_even", "gpt_odd", "gpt_mesh");
  Communicator world = test::world();
  if (world.size() == 1 || world.size() > most_ranks) return;
  ReferenceFiles const files = files_of(name);
  std::vector<ParallelConfig> const schedules = legal_schedules(files, world.size(), 1);
  CHECK(schedules.size() >= 4); // all that need no whole groups of micro-batches
  for (ParallelConfig const& parallel : schedules) check_reference(world, files, parallel);
}

TEST_CASE("with every strategy, stages of two data ranks stay within the bounds of fp32",
          "[mpi][reference][pipeline]") {
  Communicator world = test::world();
  if (world.size() != 4) return;
  ReferenceFiles const files = files_of("gpt_mesh");
  std::vector<ParallelConfig> const schedules = legal_schedules(files, 2, 2);
  for (std::int64_t const zero_stage : {0, 1, 2, 3}) { // each with another schedule
    ParallelConfig parallel = schedules.at(static_cast<std::size_t>(zero_stage));
    parallel.strategy = zero_stage == 0 ? Strategy::ddp : Strategy::zero;
    parallel.zero_stage = zero_stage;
    check_reference(world, files, parallel);
  }
}

TEST_CASE("a reference on stages that cannot be is refused, with legal values", "[mpi][reference][pipeline]") {
  Communicator world = test::world();
  ReferenceFiles const files = files_of("gpt_even");
  auto const message_of = [&](std::int64_t stages, Rank ranks) -> std::string {
    RunConfig choices;
    choices.parallel.pipeline = stages;
    try {
      check_reference_files(files, choices, ranks);
    } catch (InputError const& error) {
      return error.what();
    }
    return "";
  };
  CHECK_THAT(message_of(2, 3), ContainsSubstring("parallel.pipeline = 2 does not divide the 3 ranks"));
  CHECK_THAT(message_of(8, 8), ContainsSubstring("nearest legal value on 8 ranks: 4"));
  CHECK(message_of(4, 4).empty());
}
