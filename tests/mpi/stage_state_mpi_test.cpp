// The training state on the stages of a pipeline: hash, comparison of replicas, changes, checkpoints and model files
// are those of the whole model on one rank, and what is sent is predicted.

#include "parallel/engine/replica_check.hpp"

#include "comm/execution/control.hpp"
#include "parallel/engine/parameter_changes.hpp"
#include "parallel/plan/engine_memory.hpp"
#include "support/shared_folder.hpp"
#include "support/stages.hpp"
#include "support/training_run.hpp"
#include "train/checkpoint/checkpoint.hpp"
#include "train/checkpoint/collected_parameters.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

using namespace trainstone;
using namespace trainstone::test;
using Catch::Matchers::ContainsSubstring;

namespace {

/// On up to 4 data ranks, no share of the token table is padding alone.
constexpr GptConfig model{5, 3, 24, 11, 29};

/// The engine of a rank of some stage, without a trainer.
struct StageEngine {
  StageEngine(Communicator& world, RunConfig const& config)
      : run(resolved_on(world, config)),
        plan(run, world.rank()),
        buffer_memory(ledger, MemoryCategory::buffers, "buffers", total_bytes(engine_buffers(plan.shards))),
        buffers(buffer_memory.bytes()),
        pinned(ledger, "staging", total_bytes(engine_pinned_buffers(plan.shards))),
        sum(ledger, MemoryCategory::buffers, "sum", memory_footprint(sizeof(double))),
        engine(exec, with_buffers(world), ledger, plan.shards, plan.table, buffers, pinned) {
    fill(1);
  }

  /// Initial values of a seed, and moments that follow from them.
  void fill(std::uint64_t seed) {
    engine.set_parameters([&](Index group, Range share, Vector<float> values) {
      initialize_parameters(exec, plan.table, group, seed, share, values);
      for (Index moment = 0; moment < plan.shards.layout.moments; ++moment)
        initialize_parameters(exec, plan.table, group, seed + 1 + static_cast<std::uint64_t>(moment), share,
                              engine.moment_share(moment, group));
    });
  }

  Vector<double> room_for_sum() {
    Arena arena(sum.bytes());
    return arena.vector<double>("sum", 1);
  }

  Communicator& with_buffers(Communicator& world) {
    world.use_buffers(run.buffers, exec);
    return world;
  }

  ExecutionSpace exec;
  ResolvedRun run;
  StagePlan plan;
  MemoryLedger ledger;
  Allocation buffer_memory;
  Arena buffers;
  PinnedMemory pinned;
  Allocation sum;
  ShardedEngine engine;
};

RunConfig config_of(ParallelConfig parallel, RecipeName recipe, Index stages, Rank ranks) {
  parallel.pipeline = stages;
  RunConfig config = training_config(model, {1, 1, ranks / stages});
  config.parallel = parallel;
  config.precision.recipe = recipe;
  return config;
}

/// Every way to divide the ranks among 1 to 5 stages, with every way to share a stage's state.
std::vector<RunConfig> configs(Rank ranks, RecipeName recipe) {
  std::vector<RunConfig> all;
  for (Index const stages : {1, 2, 3, 4, 5}) {
    if (ranks % stages != 0) continue;
    for (ParallelConfig const& parallel : {ParallelConfig{},
                                           {.strategy = Strategy::zero, .zero_stage = 1},
                                           {.strategy = Strategy::zero, .zero_stage = 3}})
      all.push_back(config_of(parallel, recipe, stages, ranks));
    if (ranks / stages == 4)
      all.push_back(config_of({.strategy = Strategy::hsdp, .shard_group = 2}, recipe, stages, ranks));
  }
  return all;
}

std::string describe(RunConfig const& config) {
  return fmt::format("{} {}, {}, {} stages", to_string(config.parallel.strategy), config.parallel.zero_stage,
                     to_string(config.precision.recipe), config.parallel.pipeline);
}

/// What `look` finds with the whole model on one rank; on all ranks.
template <class Look>
auto alone(Communicator& world, RecipeName recipe, Look const& look) {
  decltype(look(std::declval<StageEngine&>(), world)) found{};
  if (std::optional<Communicator> one = world.first(1)) {
    StageEngine whole(*one, config_of({}, recipe, 1, 1));
    found = look(whole, *one);
  }
  return all_gather_values(world, found).front();
}

std::uint64_t hash_of(StageEngine& run, Communicator const&) { return parameter_hash(run.exec, run.engine); }

/// Every element of every group, as a model file would have it. On rank 0.
std::map<Index, std::vector<float>> collected(StageEngine& run, Communicator const& world) {
  std::map<Index, std::vector<float>> groups;
  std::vector<float> room(world.rank() == 0 ? 100 : 0);
  collect_parameters(run.exec, run.engine, room, [&](Index number, Index first, std::span<float const> values) {
    CHECK(std::ssize(groups[number]) == first);
    groups[number].insert(groups[number].end(), values.begin(), values.end());
  });
  for (auto& [number, values] : groups)
    values.resize(static_cast<std::size_t>(groups_of(model)[static_cast<std::size_t>(number)].size));
  return groups;
}

std::filesystem::path write(StageEngine& run, Communicator& world, std::filesystem::path const& folder) {
  CheckpointManifest about;
  about.progress.step = 1;
  about.progress.losses = {1.5};
  about.model = model;
  return folder / write_checkpoint(run.exec, world, run.engine, about, folder).name;
}

void read(StageEngine& run, Communicator& world, std::filesystem::path const& checkpoint) {
  read_checkpoint(run.exec, run.engine,
                  verify_checkpoint(world, checkpoint, {}, model, state_vectors(run.plan.shards.layout)));
}

/// Hash of parameters and moments; the moments take the place of the parameters for it.
std::uint64_t hash_of_state(StageEngine& run, Communicator const& communicator) {
  std::uint64_t hash = hash_of(run, communicator);
  for (Index moment = 0; moment < run.plan.shards.layout.moments; ++moment) {
    run.engine.set_parameters([&](Index group, Range, Vector<float> values) {
      Kokkos::deep_copy(run.exec, values, run.engine.moment_share(moment, group));
    });
    hash = hash * 31 + hash_of(run, communicator);
  }
  return hash;
}

} // namespace

TEST_CASE("the hash of stages is that of the whole model, and they send what is predicted", "[mpi][stages]") {
  RecipeName const recipe = GENERATE(RecipeName::fp32, RecipeName::mixed16);
  Communicator world = test::world();
  std::uint64_t const expected = alone(world, recipe, hash_of);
  for (RunConfig const& config : configs(world.size(), recipe)) {
    INFO(describe(config));
    StageEngine run(world, config);
    comm_counters() = {};
    CHECK(hash_of(run, world) == expected);
    CHECK(comm_counters().total(Purpose::control) == parameter_hash_traffic(run.plan.shards.layout));
    comm_counters() = {};
    ReplicaComparison const compared = compare_replicas(run.exec, world, run.engine);
    CHECK(comm_counters().total(Purpose::control) == replica_check_traffic(run.plan.shards.layout));
    CHECK(comm_counters().total(Purpose::training) == Traffic{});
    CHECK(compared.equal);
    CHECK(compared.copies_agree);
    CHECK(compared.hash == expected);
  }
}

TEST_CASE("one wrong element of a copy of the token table is found on all ranks", "[mpi][stages][replicas]") {
  RecipeName const recipe = GENERATE(RecipeName::fp32, RecipeName::mixed16);
  Communicator world = test::world();
  std::uint64_t const expected = alone(world, recipe, hash_of);
  for (RunConfig const& config : configs(world.size(), recipe)) {
    if (config.parallel.pipeline == 1) continue;
    INFO(describe(config));
    StageEngine run(world, config);
    Mesh const& mesh = run.run.mesh;
    if (mesh.index(Axis::pipeline, world.rank()) == mesh.pipeline - 1) {
      REQUIRE(run.plan.shards.layout.groups.front().number == token_table_group);
      Vector<float> const share = run.engine.master_share(0);
      Kokkos::deep_copy(run.exec, Vector<float>(share.data() + share.extent(0) / 3, 1), 0.5f);
    }
    ReplicaComparison const compared = compare_replicas(run.exec, world, run.engine);
    CHECK_FALSE(compared.equal);
    CHECK_FALSE(compared.copies_agree); // of every line
    CHECK(compared.hash == expected);
    CHECK_THAT(describe_replicas(world, compared), ContainsSubstring("first and last stage differ in the token table"));
  }
}

TEST_CASE("one line's wrong copy of the token table is found on the ranks of other lines", "[mpi][stages][replicas]") {
  Communicator world = test::world();
  if (world.size() % 2 != 0 || world.size() < 4) return;
  StageEngine run(world, config_of({}, RecipeName::fp32, 2, world.size()));
  bool const is_spoilt = world.rank() == world.size() - 1;
  if (is_spoilt) Kokkos::deep_copy(run.exec, Vector<float>(run.engine.master_share(0).data() + 7, 1), 0.5f);
  ReplicaComparison const compared = compare_replicas(run.exec, world, run.engine);
  CHECK_FALSE(compared.equal);
  CHECK(compared.copies_agree == (run.run.mesh.data_index(world.rank()) != run.run.mesh.data() - 1));
}

TEST_CASE("changes of parameters on stages are those of the whole model", "[mpi][stages][golden]") {
  Communicator world = test::world();
  auto const changes_of = [](StageEngine& run, Communicator& all) {
    return parameter_changes(run.exec, all, run.engine, 1, run.room_for_sum());
  };
  ParameterChanges const expected = alone(world, RecipeName::fp32, [&](StageEngine& run, Communicator& one) {
    run.fill(2);
    return changes_of(run, one);
  });
  for (RunConfig const& config : configs(world.size(), RecipeName::fp32)) {
    INFO(describe(config));
    StageEngine run(world, config);
    CHECK(changes_of(run, world) == ParameterChanges{});
    run.fill(2);
    counters() = {};
    comm_counters() = {};
    ParameterChanges const changes = changes_of(run, world);
    CHECK(total_launches(counters()) == parameter_changes_launches(run.plan.shards.layout, run.plan.table));
    CHECK(comm_counters().total(Purpose::control) == parameter_changes_traffic(run.plan.shards.layout));
    for (std::size_t kind = 0; kind < changes.size(); ++kind) {
      INFO(to_string(static_cast<Tensor>(kind)));
      CHECK_THAT(changes[kind], Catch::Matchers::WithinRel(expected[kind], 1e-12)); // sums in fp64, in another order
    }
  }
}

TEST_CASE("a checkpoint of any stages is read by any others", "[mpi][stages][checkpoint]") {
  RecipeName const recipe = GENERATE(RecipeName::fp32, RecipeName::mixed16);
  Communicator world = test::world();
  std::uint64_t const expected = alone(world, recipe, hash_of_state);
  SharedFolder const folder(world);
  std::vector<RunConfig> const all = configs(world.size(), recipe);
  for (std::size_t i = 0; i < all.size(); ++i) {
    INFO(describe(all[i]));
    StageEngine writer(world, all[i]);
    std::filesystem::path const checkpoint = write(writer, world, folder.path());
    if (std::optional<Communicator> one = world.first(1)) {
      StageEngine reader(*one, config_of({}, recipe, 1, 1));
      reader.fill(5);
      read(reader, *one, checkpoint);
      CHECK(hash_of_state(reader, *one) == expected);
    }
    barrier(world);
    StageEngine reader(world, all[(i + 4) % all.size()]);
    reader.fill(5);
    read(reader, world, checkpoint);
    CHECK(compare_replicas(reader.exec, world, reader.engine).equal);
    CHECK(hash_of_state(reader, world) == expected);
  }
}

TEST_CASE("the first rank collects the parameters of all stages", "[mpi][stages][checkpoint]") {
  RecipeName const recipe = GENERATE(RecipeName::fp32, RecipeName::mixed16);
  Communicator world = test::world();
  std::map<Index, std::vector<float>> expected;
  if (std::optional<Communicator> one = world.first(1)) {
    StageEngine whole(*one, config_of({}, recipe, 1, 1));
    expected = collected(whole, *one);
    CHECK(expected.size() == 8);
  }
  barrier(world);
  for (RunConfig const& config : configs(world.size(), recipe)) {
    INFO(describe(config));
    StageEngine run(world, config);
    comm_counters() = {};
    bool const equal = collected(run, world) == expected;
    CHECK(equal);
    if (run.plan.shards.gathers.slots == 0) CHECK(comm_counters().total(Purpose::training) == Traffic{});
  }
}

TEST_CASE("a file that cannot be written ends the collection on all ranks", "[mpi][stages][checkpoint]") {
  Communicator world = test::world();
  for (RunConfig const& config : configs(world.size(), RecipeName::fp32))
    for (Index const bad : {0, 4, 7}) {
      INFO(describe(config) << ", group " << bad);
      StageEngine run(world, config);
      std::vector<float> room(100);
      auto const collect = [&] {
        collect_parameters(run.exec, run.engine, room, [&](Index number, Index, std::span<float const>) {
          if (number == bad) throw Error("the medium is full");
        });
      };
      if (world.rank() == 0)
        CHECK_THROWS_WITH(collect(), ContainsSubstring("the medium is full"));
      else
        CHECK_NOTHROW(collect());
    }
}
