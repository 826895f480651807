// The first update of a training against one that was computed in float64 by another program: as it is, for every way
// to share the work, and with a mistake.

#include "deck/benchmark_class.hpp"
#include "parallel/engine/replica_check.hpp"
#include "result/golden.hpp"
#include "support/fixtures.hpp"
#include "support/master_part.hpp"
#include "support/training_run.hpp"
#include "train/data/training_data.hpp"
#include "train/verification/first_step.hpp"
#include "train/verification/run_verification.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

using namespace trainstone;
using namespace trainstone::test;

namespace {

std::string const deck_path = data_folder() / "first_update" / "deck.toml";

/// On 8 ranks the micro-batches of the deck, two samples each, are too large.
Deck deck(std::int64_t ranks) {
  return read_deck(
      {deck_path, ranks == 8 ? std::vector<std::string>{"batch.micro=1"} : std::vector<std::string>{}, {}});
}

GoldenFirstStep golden() { return find_golden_first_step(golden_path(deck_path), golden_key(deck(1), 1)).value(); }

void skip_where_the_batch_does_not_fit(Communicator const& world) {
  if (8 % world.size() != 0) SKIP("a global batch of 8 does not fit " << world.size() << " ranks");
}

using Change = std::function<void(RunConfig&)>;

/// A training of the deck, changed.
struct DeckRun {
  DeckRun(Communicator& world, Change const& change, Rank rank_of_wrong_data = -1)
      : resolved(resolved_on(world, changed(world, change))),
        data(resolved.config, ScanTokens::yes),
        planned(exec, world, resolved, batches(world.rank() == rank_of_wrong_data), data.steps()) {}

  static RunConfig changed(Communicator const& world, Change const& change) {
    RunConfig config = resolve(deck(world.size()), world.size());
    change(config);
    return config;
  }

  /// Wrong: those of the next step.
  TrainingBatches batches(bool wrong) {
    TrainingBatches all = data.batches();
    if (wrong)
      all.training = [right = all.training](std::int64_t batch, Index micro_batch, std::span<std::int32_t> inputs,
                                            std::span<std::int32_t> targets) {
        right(batch + 1, micro_batch, inputs, targets);
      };
    return all;
  }

  ExecutionSpace exec;
  ResolvedRun resolved;
  TrainingData data;
  PlannedTrainer planned;
  Trainer& trainer = planned.trainer;
};

/// Names of the checks that fail.
std::string failed_checks(Communicator& world, DeckRun& run) {
  GoldenFirstStep const expected = golden();
  std::string failed;
  for (Check const& check :
       check_first_update(run.exec, world, run.trainer, {expected.loss, expected.positions}, expected.update.value())) {
    UNSCOPED_INFO(check.name << " " << check.value << " limit " << check.limit << ": " << check.detail);
    if (!check.passed) failed += check.name + " ";
  }
  return failed;
}

std::string failed_with(Change const& change, Rank rank_of_wrong_data = -1) {
  Communicator world = test::world();
  DeckRun run(world, change, rank_of_wrong_data);
  return failed_checks(world, run);
}

Change strategy(Strategy strategy, std::int64_t stage = 0) {
  return [=](RunConfig& config) {
    config.parallel.strategy = strategy;
    config.parallel.zero_stage = stage;
  };
}

struct Case {
  std::string name;
  Change change;
  std::int64_t least_ranks = 1;
};

std::vector<Case> cases() {
  return {{"ddp", strategy(Strategy::ddp)},
          {"ddp, ordered", [](RunConfig& config) { config.parallel.reduction = ReductionMode::ordered; }},
          {"ddp, no overlap, one reduction per step",
           [](RunConfig& config) {
             config.parallel.overlap = false;
             config.parallel.granularity = Granularity::step;
           }},
          {"ddp, shared memory", [](RunConfig& config) { config.comm.allreduce = "shared"; }},
          {"ddp, staged messages", [](RunConfig& config) { config.comm.buffers = "staged"; }},
          {"loss in chunks", [](RunConfig& config) { config.model_options.loss_chunks = 2; }},
          {"two stages, loss in chunks",
           [](RunConfig& config) {
             config.parallel.pipeline = 2;
             config.batch.accumulation *= 2; // half as many data ranks
             config.model_options.loss_chunks = 2;
           },
           2},
          {"half of the ranks serve",
           [](RunConfig& config) {
             config.parallel.strategy = Strategy::parameter_server;
             config.parallel.servers = test::world().size() / 2;
             config.batch.accumulation *= 2; // half as many data ranks
           },
           2},
          {"half of the ranks serve, by priority, in slices",
           [](RunConfig& config) {
             config.parallel.strategy = Strategy::parameter_server;
             config.parallel.servers = test::world().size() / 2;
             config.parallel.server_schedule = ServerSchedule::priority;
             config.parallel.server_slice_bytes = 4096;
             config.batch.accumulation *= 2; // half as many data ranks
           },
           2},
          {"naive", strategy(Strategy::naive)},
          {"naive, main",
           [](RunConfig& config) {
             config.parallel.strategy = Strategy::naive;
             config.parallel.naive_update = NaiveUpdate::main;
           }},
          {"zero 1", strategy(Strategy::zero, 1)},
          {"zero 2", strategy(Strategy::zero, 2)},
          {"zero 2, whole blocks",
           [](RunConfig& config) {
             strategy(Strategy::zero, 2)(config);
             config.parallel.partition = StatePartition::inter_layer;
           }},
          {"zero 2, every micro-batch reduced",
           [](RunConfig& config) {
             strategy(Strategy::zero, 2)(config);
             config.parallel.reduce = ReduceWhen::each;
           }},
          {"zero 3", strategy(Strategy::zero, 3)},
          {"flash attention", [](RunConfig& config) { config.model_options.attention = AttentionKind::flash; }},
          {"hsdp",
           [](RunConfig& config) {
             config.parallel.strategy = Strategy::hsdp;
             config.parallel.shard_group = 2;
           },
           4}};
}

/// Losses of all steps, and the hash of the parameters behind them.
struct Trained {
  std::vector<double> losses;
  std::uint64_t hash = 0;
  bool operator==(Trained const&) const = default;
};

Trained trained(Communicator& world, Change const& change, bool updates_first) {
  DeckRun run(world, change);
  if (updates_first) first_update(run.trainer, golden().positions);
  Trained result;
  for (std::int64_t step = 1; step <= run.data.steps(); ++step) result.losses.push_back(run.trainer.step(step).loss);
  run.trainer.finish();
  result.hash = compare_replicas(run.exec, world, run.trainer.engine()).hash.value;
  return result;
}

/// Calls `act` before every launch with this label.
class BeforeLaunch {
public:
  BeforeLaunch(std::string_view label, std::function<void()> act)
      : m_scoped(delay_point(), [label, act = std::move(act)](char const* launched) {
          if (launched == label) act();
        }) {}

private:
  DelayPoint::Scoped m_scoped;
};

void multiply(StoredVector values, float factor) {
  Vector<float> const view = values.as<float>();
  Kokkos::parallel_for(
      "trainstone::test::multiply", Kokkos::RangePolicy<ExecutionSpace, Index>(0, values.size),
      KOKKOS_LAMBDA(Index i) { view(static_cast<std::size_t>(i)) *= factor; });
}

} // namespace

TEST_CASE("a first update agrees with float64, however it is shared", "[mpi][golden][first_update]") {
  Communicator const world = test::world();
  skip_where_the_batch_does_not_fit(world);
  for (Case const& tried : cases()) {
    if (world.size() < tried.least_ranks) continue;
    INFO(tried.name);
    CHECK(failed_with(tried.change) == "");
  }
}

TEST_CASE("a training after a first update has the same bits as one without it", "[mpi][golden][first_update]") {
  Communicator world = test::world();
  skip_where_the_batch_does_not_fit(world);
  for (Case const& tried : cases()) {
    if (world.size() < tried.least_ranks) continue;
    INFO(tried.name);
    Trained const with = trained(world, tried.change, true), without = trained(world, tried.change, false);
    CHECK(with.losses == without.losses);
    CHECK(with.hash == without.hash);
  }
}

TEST_CASE("a first update by another optimizer is not the golden one", "[mpi][golden][first_update]") {
  skip_where_the_batch_does_not_fit(test::world());
  auto const with = [](auto const& change) {
    return failed_with([&](RunConfig& config) { change(config.optimizer); });
  };
  CHECK(with([](OptimizerConfig& optimizer) { optimizer.learning_rate /= 2; }) == "first-update parameter-changes ");
  CHECK(with([](OptimizerConfig& optimizer) { optimizer.epsilon *= 10; }).ends_with("parameter-changes "));
  CHECK(with([](OptimizerConfig& optimizer) { optimizer.weight_decay = 0; }).ends_with("parameter-changes "));
  CHECK(with([](OptimizerConfig& optimizer) { optimizer.clip = 0; }).ends_with("parameter-changes "));
  CHECK(with([](OptimizerConfig& optimizer) { optimizer.decay = DecayScope::all; }).ends_with("parameter-changes "));
}

TEST_CASE("a tensor that is not updated shows in a first update", "[mpi][golden][first_update]") {
  Communicator world = test::world();
  skip_where_the_batch_does_not_fit(world);
  DeckRun run(world, strategy(Strategy::ddp));
  Vector<float> const bias = test::master_part(run.trainer.engine(), Tensor::attprojb, 1); // begins with zeros
  BeforeLaunch const freeze("trainstone::initialize::changes", [&] { multiply(bias, 0); });
  CHECK(failed_checks(world, run).ends_with("parameter-changes "));
}

TEST_CASE("a rank whose gradient is lost or counted twice shows in a first update", "[mpi][golden][first_update]") {
  Communicator world = test::world();
  skip_where_the_batch_does_not_fit(world);
  if (world.size() == 1) SKIP("wants a second rank");
  for (float const times : {0.0F, 2.0F})
    for (std::int64_t const stage : {0, 3}) {
      INFO(times << " times, stage " << stage);
      DeckRun run(world, strategy(stage == 0 ? Strategy::ddp : Strategy::zero, stage));
      // when the losses are added up, the head's logits are the gradient that backward begins with
      StoredMatrix const logits = run.trainer.model().output({PartKind::head});
      BeforeLaunch const change("trainstone::norm::sum", [&] {
        if (world.rank() == 1) multiply(logits.flat(), times);
      });
      CHECK(failed_checks(world, run) == "first-update gradient-norms gradient-sizes parameter-changes ");
    }
}

TEST_CASE("a rank with other data shows in a first update", "[mpi][golden][first_update]") {
  Communicator const world = test::world();
  skip_where_the_batch_does_not_fit(world);
  CHECK(failed_with(strategy(Strategy::ddp), world.size() - 1) ==
        "first-update gradient-norms gradient-sizes parameter-changes ");
}

TEST_CASE("the samples of a first update count each position once, and each sample one", "[mpi][first_update]") {
  for (Index const samples : {1, 2, 7, 8, 12})
    for (Index const positions : {12, 13, 1024}) {
      Index end = 0;
      for (Index place = 0; place < samples; ++place) {
        Range const part = first_step_part(place, samples, positions);
        CHECK(part.begin == end);
        CHECK(part.size() >= 1);
        end = part.end;
      }
      CHECK(end == positions);
    }
}
