// Checkpoints on several ranks: written under one strategy, read under another one and on other numbers of ranks, they
// go on to the same bits as a training that was never interrupted; what is not whole is refused on all ranks.

#include "train/checkpoint/checkpoint.hpp"

#include "comm/execution/control.hpp"
#include "parallel/engine/parameter_hash.hpp"
#include "support/shared_folder.hpp"
#include "support/training_run.hpp"
#include "train/checkpoint/folder.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <bit>
#include <fstream>

using namespace trainstone;
using namespace trainstone::test;
using Catch::Matchers::ContainsSubstring;

namespace {

namespace fs = std::filesystem;

GptConfig const odd{2, 3, 12, 11, 29};
TrainingIdentity const identity{{"data.seed", "1"}};

std::vector<ParallelConfig> strategies(Rank ranks) {
  std::vector<ParallelConfig> all{
      {},
      {.strategy = Strategy::zero, .zero_stage = 3},
      {.strategy = Strategy::naive},
      {.strategy = Strategy::naive, .naive_update = NaiveUpdate::main},
      {.strategy = Strategy::zero, .zero_stage = 1},
      {.strategy = Strategy::zero, .zero_stage = 2, .partition = StatePartition::inter_layer},
      {.strategy = Strategy::zero, .zero_stage = 2},
      {.strategy = Strategy::zero, .zero_stage = 3, .partition = StatePartition::inter_layer}};
  for (Rank group = 2; group < ranks; group *= 2) all.push_back({.strategy = Strategy::hsdp, .shard_group = group});
  for (ParallelConfig& one : all) one.reduction = ReductionMode::ordered;
  return all;
}

RunConfig config_of(ParallelConfig const& parallel, PrecisionConfig const& precision, Rank ranks) {
  RunConfig config = training_config(odd, {1, 8 / ranks, 8});
  config.parallel = parallel;
  config.precision = precision;
  return config;
}

PrecisionConfig fp16_scaled() {
  PrecisionConfig precision;
  precision.recipe = RecipeName::mixed20;
  precision.storage = Storage::fp16;
  precision.loss_scale = LossScaling::dynamic;
  precision.growth_interval = 2; // in the middle of two steps when the checkpoint is written
  return precision;
}

fs::path write(TrainingRun& run, Communicator& world, std::int64_t step, fs::path const& folder) {
  auto const [updates, loss_scaler] = run.trainer.state();
  CheckpointManifest about;
  about.progress = {step, updates, loss_scaler, std::vector<double>(static_cast<std::size_t>(step), 1.5), 0, false, {}};
  about.identity = identity;
  about.model = run.resolved.config.model;
  return folder / write_checkpoint(run.exec, world, run.trainer.engine(), about, folder).name;
}

/// Hash of the parameters after the steps up to `last`, begun from a checkpoint.
std::uint64_t resumed_hash(Communicator& communicator, RunConfig const& config, fs::path const& checkpoint,
                           std::int64_t last) {
  TrainingRun run(communicator, config);
  StoredCheckpoint const stored =
      verify_checkpoint(communicator, checkpoint, identity, config.model, state_vectors(run.plan.parallel.layout));
  TrainingProgress const& progress = stored.manifest().progress;
  read_checkpoint(run.exec, run.trainer.engine(), stored);
  run.trainer.resume({progress.updates, progress.loss_scaler});
  for (std::int64_t step = progress.step + 1; step <= last; ++step) run.trainer.step(step);
  run.trainer.finish();
  return parameter_hash(run.exec, run.trainer.engine());
}

std::string refusal_of(Communicator& world, TrainingRun const& run, fs::path const& checkpoint,
                       TrainingIdentity const& wanted = identity) {
  try {
    verify_checkpoint(world, checkpoint, wanted, odd, state_vectors(run.plan.parallel.layout));
  } catch (CollectiveError const& error) {
    CHECK(error.code() == ExitCode::usage);
    return error.what();
  }
  return "accepted";
}

void damage(Communicator const& world, std::function<void()> const& work) {
  if (world.rank() == 0) work();
  barrier(world);
}

void flip_byte(fs::path const& path, std::streamoff place) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(place);
  char const byte = static_cast<char>(file.get());
  file.seekp(place);
  file.put(static_cast<char>(byte ^ 4));
}

} // namespace

TEST_CASE("a training goes on from a checkpoint of any strategy under any other, to the same bits",
          "[mpi][checkpoint]") {
  Communicator world = Communicator::world();
  if (world.size() > 8 || !std::has_single_bit(static_cast<unsigned>(world.size()))) return; // ordered mode's
  PrecisionConfig mixed;
  mixed.recipe = RecipeName::mixed16;
  PrecisionConfig const precision = GENERATE_COPY(PrecisionConfig(), mixed, fp16_scaled());
  CAPTURE(to_string(precision.recipe));
  constexpr std::int64_t middle = 3, last = 5;

  std::uint64_t uninterrupted = 0;
  std::vector<ParallelConfig> const writers = strategies(world.size());
  for (std::size_t i = 0; i < writers.size(); ++i) {
    CAPTURE(to_string(writers[i].strategy), writers[i].zero_stage);
    SharedFolder const folder(world);
    TrainingRun run(world, config_of(writers[i], precision, world.size()));
    for (std::int64_t step = 1; step <= middle; ++step) run.trainer.step(step);
    fs::path const checkpoint = write(run, world, middle, folder.path());
    for (std::int64_t step = middle + 1; step <= last; ++step) run.trainer.step(step);
    run.trainer.finish();
    std::uint64_t const whole = parameter_hash(run.exec, run.trainer.engine());
    if (i == 0) uninterrupted = whole;
    CHECK(whole == uninterrupted);
    for (Rank ranks = world.size(); ranks >= 1; ranks /= 2) {
      std::vector<ParallelConfig> const readers = strategies(ranks);
      if (std::optional<Communicator> part = world.first(ranks))
        CHECK(resumed_hash(*part, config_of(readers[(i + 1) % readers.size()], precision, ranks), checkpoint, last) ==
              uninterrupted);
      barrier(world);
    }
  }
}

TEST_CASE("every element is written once, by one of its owners, and all of them share the work", "[mpi][checkpoint]") {
  Communicator world = Communicator::world();
  if (world.size() > 8 || !std::has_single_bit(static_cast<unsigned>(world.size()))) return;
  for (ParallelConfig const& parallel : strategies(world.size())) {
    CAPTURE(to_string(parallel.strategy), parallel.zero_stage);
    RunConfig const config = config_of(parallel, {}, world.size());
    std::vector<RunPlan> plans;
    for (Rank rank = 0; rank < world.size(); ++rank) plans.push_back(plan_run(config, rank, world.topology()));
    Index all = 0, most = 0;
    for (RunPlan const& plan : plans) {
      Index mine = 0;
      for (Index g = 0; g < std::ssize(plan.parallel.layout.groups); ++g)
        mine += written_range(plan.parallel.layout, g).size();
      all += mine;
      most = std::max(most, mine);
    }
    CHECK(all == plans.front().table.model_parameters() +
                     (odd.padded_vocab() - odd.vocab) * odd.channels); // the token table's own padding is part of it
    bool const alone = parallel.strategy == Strategy::naive && parallel.naive_update == NaiveUpdate::main;
    bool const shared_out = parallel.partition == StatePartition::intra_layer && !alone;
    CHECK((!shared_out || most <= all / world.size() + 3 * 256 * std::ssize(plans.front().parallel.layout.groups)));
  }
}

TEST_CASE("a checkpoint that is not whole, or another training's, is refused on all ranks by name",
          "[mpi][checkpoint]") {
  Communicator world = Communicator::world();
  if (world.size() > 8 || !std::has_single_bit(static_cast<unsigned>(world.size()))) return;
  SharedFolder const folder(world);
  TrainingRun run(world, config_of({.strategy = Strategy::zero, .zero_stage = 3}, {}, world.size()));
  auto const fresh = [&] { return write(run, world, 1, folder.path()); };
  std::string const last_file = checkpoint_file_name(world.size() - 1);

  fs::path const good = fresh();
  CHECK(refusal_of(world, run, good) == "accepted");
  CHECK_THAT(refusal_of(world, run, good, {{"data.seed", "2"}}),
             ContainsSubstring("step-00000001: it belongs to another training: data.seed is 1 there and 2 here"));
  CHECK_THAT(refusal_of(world, run, good, {{"data.seed", "1"}, {"model.layers", "2"}}),
             ContainsSubstring("model.layers is not given there and 2 here"));
  CHECK_THAT(refusal_of(world, run, good, {}), ContainsSubstring("data.seed is 1 there and not given here"));
  RunConfig other = run.resolved.config;
  other.optimizer.type = OptimizerType::sgd;
  TrainingRun const without_moments(world, other);
  CHECK_THAT(refusal_of(world, without_moments, good), ContainsSubstring("it holds another model"));

  fs::path const flipped = fresh();
  damage(world, [&] { flip_byte(flipped / last_file, 1000); });
  CHECK_THAT(refusal_of(world, run, flipped), ContainsSubstring(last_file + " is damaged"));
  fs::path const cut = fresh();
  damage(world, [&] { fs::resize_file(cut / last_file, fs::file_size(cut / last_file) - 1); });
  CHECK_THAT(refusal_of(world, run, cut), ContainsSubstring(last_file + " has "));
  fs::path const longer = fresh();
  damage(world, [&] { std::ofstream(longer / last_file, std::ios::app) << "x"; });
  CHECK_THAT(refusal_of(world, run, longer), ContainsSubstring(last_file + " has "));
  fs::path const missing = fresh();
  damage(world, [&] { fs::remove(missing / last_file); });
  CHECK_THAT(refusal_of(world, run, missing), ContainsSubstring(last_file + ": No such file"));
  fs::path const partial = fresh();
  damage(world, [&] { fs::remove(partial / manifest_name); });
  CHECK_THAT(refusal_of(world, run, partial), ContainsSubstring("there is no manifest"));
  fs::path const empty = fresh();
  damage(world, [&] { fs::resize_file(empty / manifest_name, 0); });
  CHECK_THAT(refusal_of(world, run, empty), ContainsSubstring("the manifest is empty"));
  CHECK_THAT(refusal_of(world, run, folder.path() / "nowhere"), ContainsSubstring("nowhere: there is no manifest"));
  if (world.size() == 1) return;
  fs::path const swapped = fresh();
  damage(world, [&] {
    fs::rename(swapped / "rank-00000", swapped / "x");
    fs::rename(swapped / "rank-00001", swapped / "rank-00000");
    fs::rename(swapped / "x", swapped / "rank-00001");
  });
  CHECK_THAT(refusal_of(world, run, swapped), ContainsSubstring("rank-0000"));
  CHECK(refusal_of(world, run, swapped) != "accepted");
}
