// What the stages of a pipeline hold of the training state, without messages: the files of all ranks together, and the
// parts that the changes of parameters go over.

#include "core/durable_file.hpp"
#include "model/parameter_runs.hpp"
#include "parallel/engine/parameter_changes.hpp"
#include "parallel/engine/replica_check.hpp"
#include "support/run_configs.hpp"
#include "support/stages.hpp"
#include "support/temporary_folder.hpp"
#include "train/checkpoint/checkpoint.hpp"
#include "train/checkpoint/folder.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <fstream>
#include <vector>

using namespace trainstone;
using namespace trainstone::test;

namespace {

constexpr GptConfig model{5, 3, 12, 11, 29};

ResolvedRun run_of(ParallelConfig parallel, Index stages, Rank ranks) {
  parallel.pipeline = stages;
  RunConfig config = make_config(model, 10, {1, 1, ranks / stages});
  config.parallel = parallel;
  return resolve_run(config, Topology::one_node(ranks));
}

std::vector<StagePlan> plans_of(ResolvedRun const& run) {
  std::vector<StagePlan> plans;
  for (Rank rank = 0; rank < run.mesh.ranks(); ++rank) plans.emplace_back(run, rank);
  return plans;
}

std::vector<ParallelConfig> strategies() {
  return {{},
          {.strategy = Strategy::zero, .zero_stage = 1},
          {.strategy = Strategy::zero, .zero_stage = 2, .partition = StatePartition::inter_layer},
          {.strategy = Strategy::zero, .zero_stage = 3},
          {.strategy = Strategy::hsdp, .shard_group = 2}};
}

/// Another value for every element of every vector of the whole model: all are exact in fp32.
float value_of(Index vector, Index number, Index element) {
  return static_cast<float>((vector * 16 + number) * 8192 + element);
}

/// The files that all ranks write, of elements that know their place in the whole model.
CheckpointManifest write_files(std::vector<StagePlan> const& plans, std::filesystem::path const& folder) {
  CheckpointManifest manifest;
  manifest.model = model;
  manifest.groups = groups_of(model);
  manifest.vectors = state_vectors(plans.front().shards.layout);
  for (StagePlan const& plan : plans) {
    CheckpointFile file{checkpoint_file_name(plan.shards.layout.rank), {}, {}};
    std::ofstream output(folder / file.name, std::ios::binary);
    for (WrittenPart const& written : written_parts(plan.shards.layout, plan.table)) {
      CheckpointPart const& part = file.parts.emplace_back(written.part);
      CHECK(plan.table.groups()[static_cast<std::size_t>(written.group)].number == part.group);
      std::vector<float> values;
      for (Index vector = 0; vector < manifest.vectors; ++vector)
        for (Index i = part.range.begin; i < part.range.end; ++i) values.push_back(value_of(vector, part.group, i));
      output.write(reinterpret_cast<char const*>(values.data()), std::ssize(values) * Index{sizeof(float)});
    }
    output.close();
    file.digest = digest_of(folder / file.name);
    if (!file.parts.empty()) manifest.files.push_back(file);
  }
  return manifest;
}

/// Elements of a rank's shares that a checkpoint has otherwise than value_of().
Index wrong_elements(StoredCheckpoint const& checkpoint, StagePlan const& plan) {
  StateLayout const& layout = plan.shards.layout;
  Index wrong = 0;
  for (Index vector = 0; vector < state_vectors(layout); ++vector)
    for (Index group = 0; group < std::ssize(layout.groups); ++group)
      for (GroupRun const& run : group_runs(plan.table, group, layout.share(group))) {
        Index const number = layout.groups[static_cast<std::size_t>(group)].number;
        std::vector<float> values(static_cast<std::size_t>(run.in_whole.size()), -1);
        checkpoint.read(vector, number, run.in_whole, values);
        for (Index i = 0; i < run.in_whole.size(); ++i)
          wrong += values[static_cast<std::size_t>(i)] == value_of(vector, number, run.in_whole.begin + i) ? 0 : 1;
      }
  return wrong;
}

} // namespace

TEST_CASE("files of any stages have every element once, and any other stages read them", "[train][checkpoint]") {
  Index const stages = GENERATE(1, 2, 3, 5);
  Rank const data_ranks = GENERATE(1, 2, 4);
  for (ParallelConfig const& parallel : strategies()) {
    if (parallel.shard_group > data_ranks) continue;
    CAPTURE(stages, data_ranks, to_string(parallel.strategy), parallel.zero_stage);
    TemporaryFolder const folder;
    ResolvedRun const run = run_of(parallel, stages, static_cast<Rank>(stages) * data_ranks);
    CheckpointManifest const manifest = write_files(plans_of(run), folder.path());
    StoredCheckpoint const stored(folder.path(), to_text(manifest)); // reading refuses elements that are twice, or not
    for (std::size_t i = 0; i < manifest.files.size(); ++i) stored.require_whole(i);
    for (Index const others : {1, 2, 4})
      for (StagePlan const& reader : plans_of(run_of({.strategy = Strategy::zero, .zero_stage = 1}, others, 4)))
        CHECK(wrong_elements(stored, reader) == 0);
  }
}

TEST_CASE("the manifest of several stages is that of the whole model", "[train][checkpoint]") {
  TemporaryFolder const whole, staged;
  CheckpointManifest const one = write_files(plans_of(run_of({}, 1, 1)), whole.path()),
                           three = write_files(plans_of(run_of({}, 3, 3)), staged.path());
  CHECK(one.groups == three.groups);
  REQUIRE(three.files.size() == 3);
  auto const numbers = [](CheckpointFile const& file) {
    std::vector<Index> all;
    for (CheckpointPart const& part : file.parts) all.push_back(part.group);
    return all;
  };
  CHECK(numbers(one.files.front()) == std::vector<Index>{0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(numbers(three.files[0]) == std::vector<Index>{0, 1, 3, 4});
  CHECK(numbers(three.files[1]) == std::vector<Index>{5, 6});
  CHECK(numbers(three.files[2]) == std::vector<Index>{2, 7}); // not its copy of the token table
  CheckpointManifest lost = three;
  lost.files[0].parts.erase(lost.files[0].parts.begin());
  CHECK_THROWS_AS(read_manifest(to_text(lost)), InputError);
}

TEST_CASE("stages look at the changes of every tensor of the model once", "[train][golden]") {
  Index const stages = GENERATE(2, 3, 5);
  auto const launches = [](Index of) {
    std::uint64_t all = 0;
    for (StagePlan const& plan : plans_of(run_of({}, of, static_cast<Rank>(of))))
      all += parameter_changes_launches(plan.shards, plan.table);
    return all;
  };
  CHECK(launches(1) == 4 + 5 * 13); // two for the bias of qkv
  CHECK(launches(stages) == launches(1));
}

TEST_CASE("a comparison of replicas on stages sends two values along the line and three to all", "[train][replicas]") {
  // a ring all-reduce of n values on n ranks: everybody sends n - 1 sums and passes n - 1 on, of a value each
  std::vector<StagePlan> const ddp = plans_of(run_of({}, 3, 3));
  for (StagePlan const& plan : ddp) {
    Traffic const sent = replica_check_traffic(plan.shards.layout);
    Traffic const whole = replica_check_traffic(plans_of(run_of({}, 1, 3))[0].shards.layout);
    CHECK(sent.bytes >= 2 * 2 * 8);
    CHECK(sent.bytes > whole.bytes);
  }
  std::uint64_t bytes = 0;
  for (StagePlan const& plan : ddp) bytes += replica_check_traffic(plan.shards.layout).bytes;
  CHECK(bytes == 2 * (3 - 1) * (2 + 3) * 8); // over all ranks: 2 (N - 1) S
  bytes = 0;                                 // in zero 3 shares meet first: 2 lines of 2 stages, 2 stages of 2 shares
  for (StagePlan const& plan : plans_of(run_of({.strategy = Strategy::zero, .zero_stage = 3}, 2, 4)))
    bytes += replica_check_traffic(plan.shards.layout).bytes;
  CHECK(bytes == (2 * 2 * (2 - 1) * 2 + 2 * 2 * (2 - 1) * 2 + 2 * (4 - 1) * 3) * 8);
}
