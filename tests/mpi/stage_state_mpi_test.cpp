// The training state on tensor ranks and on the stages of a pipeline: hash, comparison of replicas, changes,
// checkpoints and model files are those of the whole model on one rank, and what is sent is predicted.

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
constexpr GptConfig model{5, 12, 24, 11, 29};

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

/// How the model is cut.
struct Cut {
  Index stages = 1, slices = 1, tensor = 1, features = 1;

  Index sharers() const { return stages * tensor * features; }
};

RunConfig config_of(ParallelConfig parallel, RecipeName recipe, Cut const& cut, Rank ranks) {
  parallel.pipeline = cut.stages;
  parallel.tensor = cut.tensor;
  parallel.tensor_grid[1] = cut.features;
  parallel.tensor_blocks = cut.slices;
  RunConfig config = training_config(model, {1, 1, ranks / cut.sharers()});
  config.parallel = parallel;
  config.precision.recipe = recipe;
  return config;
}

/// Uncut, in four slices on 1, 2 and 4 tensor ranks, and in three, whose token table has another padding, on 3; and on
/// grids whose ranks share features.
std::vector<Cut> cuts(Rank ranks) {
  std::vector<Cut> all;
  for (Cut const slices : {Cut{1, 1, 1}, Cut{1, 4, 1}, Cut{1, 4, 2}, Cut{1, 4, 4}, Cut{1, 3, 3}, Cut{1, 1, 1, 2},
                           Cut{1, 2, 2, 2}, Cut{1, 1, 1, 3}})
    for (Index const stages : {1, 2, 3, 4, 5})
      if (Cut const cut{stages, slices.slices, slices.tensor, slices.features}; ranks % cut.sharers() == 0)
        all.push_back(cut);
  return all;
}

/// Every way to divide the ranks among 1 to 5 stages and 1 to 4 tensor ranks, with every way to share their state.
std::vector<RunConfig> configs(Rank ranks, RecipeName recipe) {
  std::vector<RunConfig> all;
  for (Cut const& cut : cuts(ranks)) {
    for (ParallelConfig const& parallel : {ParallelConfig{},
                                           {.strategy = Strategy::zero, .zero_stage = 1},
                                           {.strategy = Strategy::zero, .zero_stage = 3}})
      all.push_back(config_of(parallel, recipe, cut, ranks));
    if (ranks / cut.sharers() == 4)
      all.push_back(config_of({.strategy = Strategy::hsdp, .shard_group = 2}, recipe, cut, ranks));
  }
  return all;
}

std::string describe(RunConfig const& config) {
  ParallelConfig const& parallel = config.parallel;
  return fmt::format("{} {}, {}, {} stages, {} slices on {} x {} tensor ranks", to_string(parallel.strategy),
                     parallel.zero_stage, to_string(config.precision.recipe), parallel.pipeline, parallel.slices(),
                     parallel.tensor, parallel.features());
}

/// What `look` finds with the whole model on one rank, by the number of its slices; on all ranks.
template <class Look>
auto alone(Communicator& world, RecipeName recipe, Look const& look) {
  std::map<Index, decltype(look(std::declval<StageEngine&>(), world))> all;
  for (Index const slices : {1, 2, 3, 4}) {
    auto& found = all[slices];
    if (std::optional<Communicator> one = world.first(1)) {
      StageEngine whole(*one, config_of({}, recipe, {1, slices, 1}, 1));
      found = look(whole, *one);
    }
    found = all_gather_values(world, found).front();
  }
  return all;
}

std::uint64_t hash_of(StageEngine& run, Communicator const&) { return parameter_hash(run.exec, run.engine); }

/// Every element of every group, as a model file would have it. On rank 0.
std::map<Index, std::vector<float>> collected(StageEngine& run, Communicator const& world) {
  std::map<Index, std::vector<float>> groups;
  std::vector<float> room(world.rank() == 0 ? 100 : 0);
  std::vector<CheckpointGroup> const sizes = groups_of(model);
  Index elements = 0;
  collect_parameters(run.exec, run.engine, room, [&](Index number, Index first, std::span<float const> values) {
    std::vector<float>& group = groups[number];
    group.resize(static_cast<std::size_t>(sizes[static_cast<std::size_t>(number)].size));
    REQUIRE(first + std::ssize(values) <= std::ssize(group));
    std::ranges::copy(values, group.begin() + first);
    elements += std::ssize(values);
  });
  for (auto const& [number, values] : groups) elements -= std::ssize(values);
  CHECK(elements == 0); // each came once
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
  auto const expected = alone(world, recipe, hash_of);
  for (RunConfig const& config : configs(world.size(), recipe)) {
    INFO(describe(config));
    StageEngine run(world, config);
    comm_counters() = {};
    std::uint64_t const hash = hash_of(run, world);
    CHECK((hash == expected.at(config.parallel.slices())) == (config.parallel.features() == 1));
    CHECK(comm_counters().total(Purpose::control) == parameter_hash_traffic(run.plan.shards.layout));
    comm_counters() = {};
    ReplicaComparison const compared = compare_replicas(run.exec, world, run.engine);
    CHECK(comm_counters().total(Purpose::control) == replica_check_traffic(run.plan.shards.layout));
    CHECK(comm_counters().total(Purpose::training) == Traffic{});
    CHECK(compared.equal);
    CHECK(compared.hash.copies_agree);
    CHECK(compared.hash.value == hash);
  }
}

TEST_CASE("one wrong element of a copy of the token table is found on all ranks", "[mpi][stages][replicas]") {
  RecipeName const recipe = GENERATE(RecipeName::fp32, RecipeName::mixed16);
  Communicator world = test::world();
  for (RunConfig const& config : configs(world.size(), recipe)) {
    if (config.parallel.pipeline == 1) continue;
    INFO(describe(config));
    StageEngine run(world, config);
    std::uint64_t const hash = hash_of(run, world);
    Mesh const& mesh = run.run.mesh;
    if (mesh.index(Axis::pipeline, world.rank()) == mesh.pipeline - 1) {
      REQUIRE(run.plan.shards.layout.groups.front().number == token_table_group);
      Vector<float> const share = run.engine.master_share(0);
      Kokkos::deep_copy(run.exec, Vector<float>(share.data() + share.extent(0) / 3, 1), 0.5f);
    }
    ReplicaComparison const compared = compare_replicas(run.exec, world, run.engine);
    CHECK_FALSE(compared.equal);
    CHECK_FALSE(compared.hash.copies_agree); // of every line
    CHECK(compared.hash.value == hash);      // the copy is not counted
    CHECK_THAT(describe_replicas(world, compared), ContainsSubstring("first and last stage differ in the token table"));
  }
}

TEST_CASE("one line's wrong copy of the token table is found on the ranks of other lines", "[mpi][stages][replicas]") {
  Communicator world = test::world();
  if (world.size() % 2 != 0 || world.size() < 4) return;
  StageEngine run(world, config_of({}, RecipeName::fp32, {2, 1, 1}, world.size()));
  bool const is_spoilt = world.rank() == world.size() - 1;
  if (is_spoilt) Kokkos::deep_copy(run.exec, Vector<float>(run.engine.master_share(0).data() + 7, 1), 0.5f);
  ReplicaComparison const compared = compare_replicas(run.exec, world, run.engine);
  CHECK_FALSE(compared.equal);
  CHECK(compared.hash.copies_agree == (run.run.mesh.data_index(world.rank()) != run.run.mesh.data() - 1));
}

TEST_CASE("one tensor rank's wrong element of what is not cut is found on all ranks", "[mpi][stages][replicas]") {
  RecipeName const recipe = GENERATE(RecipeName::fp32, RecipeName::mixed16);
  Communicator world = test::world();
  for (RunConfig const& config : configs(world.size(), recipe)) {
    if (config.parallel.tensor == 1) continue;
    INFO(describe(config));
    StageEngine run(world, config);
    StateLayout const& layout = run.plan.shards.layout;
    Index const last = std::ssize(layout.groups) - 1; // a block, or the final norm, whose first section is not cut
    bool const is_spoilt = layout.mesh.index(Axis::tensor, world.rank()) == 1 && layout.share(last).begin == 0;
    if (is_spoilt) Kokkos::deep_copy(run.exec, Vector<float>(run.engine.master_share(last).data() + 5, 1), 0.5f);
    ReplicaComparison const compared = compare_replicas(run.exec, world, run.engine);
    CHECK_FALSE(compared.equal);
    CHECK_THAT(describe_replicas(world, compared), ContainsSubstring("of tensors that are not cut"));
  }
}

TEST_CASE("one rank's wrong element of what all ranks that share features have is found on all ranks",
          "[mpi][stages][replicas]") {
  Communicator world = test::world();
  for (RunConfig const& config : configs(world.size(), RecipeName::fp32)) {
    if (config.parallel.features() == 1) continue;
    INFO(describe(config));
    StageEngine run(world, config);
    StateLayout const& layout = run.plan.shards.layout;
    Index const last = std::ssize(layout.groups) - 1;
    bool is_spoilt = false;
    if (layout.groups[static_cast<std::size_t>(last)].number > 2) // a block
      for (ParameterSection const& section : layout.groups[static_cast<std::size_t>(last)].sections) {
        Range const share = layout.share(last);
        bool const is_here = share.begin <= section.elements.begin && section.elements.begin < share.end;
        if (section.is_of_part() || !is_here || layout.mesh.index(Axis::features, world.rank()) != 1) continue;
        Index const place = section.elements.begin - share.begin;
        Kokkos::deep_copy(run.exec, Vector<float>(run.engine.master_share(last).data() + place, 1), 0.5f);
        is_spoilt = true;
      }
    std::vector<char> const all = all_gather_values(world, static_cast<char>(is_spoilt));
    if (std::ranges::none_of(all, [](char one) { return one != 0; })) continue; // the last group is the final norm
    ReplicaComparison const compared = compare_replicas(run.exec, world, run.engine);
    CHECK_FALSE(compared.equal);
    CHECK_THAT(describe_replicas(world, compared), ContainsSubstring("of tensors with all features"));
  }
}

TEST_CASE("changes of parameters on stages are those of the whole model", "[mpi][stages][golden]") {
  Communicator world = test::world();
  auto const changes_of = [](StageEngine& run, Communicator& all) {
    return parameter_changes(run.exec, all, run.engine, 1, run.room_for_sum());
  };
  auto const expected = alone(world, RecipeName::fp32, [&](StageEngine& run, Communicator& one) {
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
    CHECK(total_launches(counters()) == parameter_changes_launches(run.plan.shards, run.plan.table));
    CHECK(comm_counters().total(Purpose::control) == parameter_changes_traffic(run.plan.shards.layout));
    for (std::size_t kind = 0; kind < changes.size(); ++kind) {
      INFO(to_string(static_cast<Tensor>(kind)));
      CHECK_THAT(changes[kind],
                 Catch::Matchers::WithinRel(expected.at(1)[kind], 1e-12)); // sums in fp64, in another order
    }
  }
}

TEST_CASE("a checkpoint of any stages is read by any others", "[mpi][stages][checkpoint]") {
  RecipeName const recipe = GENERATE(RecipeName::fp32, RecipeName::mixed16);
  Communicator world = test::world();
  auto const expected = alone(world, recipe, hash_of_state);
  SharedFolder const folder(world);
  std::vector<RunConfig> const all = configs(world.size(), recipe);
  for (std::size_t i = 0; i < all.size(); ++i) {
    INFO(describe(all[i]));
    StageEngine writer(world, all[i]);
    std::filesystem::path const checkpoint = write(writer, world, folder.path());
    if (std::optional<Communicator> one = world.first(1)) {
      StageEngine reader(*one, config_of({}, recipe, {}, 1));
      reader.fill(5);
      read(reader, *one, checkpoint);
      CHECK(hash_of_state(reader, *one) == expected.at(1));
    }
    barrier(world);
    RunConfig const& other = all[(i + 4) % all.size()];
    StageEngine reader(world, other);
    reader.fill(5);
    read(reader, world, checkpoint);
    CHECK(compare_replicas(reader.exec, world, reader.engine).equal);
    StageEngine begun(world, other);
    CHECK(hash_of_state(reader, world) == hash_of_state(begun, world));
  }
}

TEST_CASE("the first rank collects the parameters of all stages", "[mpi][stages][checkpoint]") {
  RecipeName const recipe = GENERATE(RecipeName::fp32, RecipeName::mixed16);
  Communicator world = test::world();
  std::map<Index, std::vector<float>> expected;
  if (std::optional<Communicator> one = world.first(1)) {
    StageEngine whole(*one, config_of({}, recipe, {}, 1));
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
