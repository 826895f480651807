#pragma once

// A training of two steps and a validation, of which everything that is counted must equal what is planned.

#include "support/counted_work.hpp"
#include "support/training_run.hpp"
#include "train/plan/program_proof.hpp"
#include "train/verification/run_verification.hpp"

#include <catch2/catch_test_macros.hpp>

#include <cstdint>
#include <vector>

namespace trainstone::test {

/// Two steps and a validation, counted and planned.
inline void check_counts(Communicator& world, RunConfig const& config) {
  TrainingRun run(world, config);
  CHECK(prove_programs(run.resolved));
  counters() = {};
  comm_counters() = {};
  for (std::int64_t step = 1; step <= 2; ++step) run.trainer.step(step);
  run.trainer.validate();
  auto const evaluated = static_cast<std::uint64_t>(2 * run.plan.held_out_micro_batches);
  CHECK(run.ledger.high_water() == run.plan.memory_bytes());
  CHECK(counters().flops[Phase::gemm] == 2 * run.plan.step_flops.gemm + evaluated * run.plan.evaluation_flops.gemm);
  CHECK(counters().flops[Phase::attention] ==
        2 * run.plan.step_flops.attention + evaluated * run.plan.evaluation_flops.attention);
  check_work(run.plan, config.optimizer, 2, evaluated);
  CHECK(total_launches(counters()) ==
        2 * (run.plan.step_launches + run.plan.update_launches) + evaluated * run.plan.evaluation_launches);
  StateMoves const gathered = 2 * run.plan.gather_moves + evaluated * run.plan.evaluation_moves;
  CHECK(run.trainer.engine().parameter_shares().gathered() == gathered);
  Traffic training = run.plan.step_sent();
  training = training + training;
  for (std::uint64_t i = 0; i < evaluated; ++i) training = training + run.plan.validation_sent;
  CHECK(comm_counters().total(Purpose::training) == training);
  CHECK(comm_counters().total(Purpose::control) == 2 * (run.plan.step_control() + run.plan.validation_control));
  CHECK(check_replicas(run.exec, world, run.trainer).passed);
}

/// Among so many data ranks. With HSDP, two ranks are a group.
inline std::vector<ParallelConfig> strategies(Rank data) {
  std::vector<ParallelConfig> all{{}};
  for (Index stage = 1; stage <= 3; ++stage) all.push_back({.strategy = Strategy::zero, .zero_stage = stage});
  if (data % 2 == 0) all.push_back({.strategy = Strategy::hsdp, .shard_group = 2});
  return all;
}

/// All of `strategies` on up to 4 ranks. More ranks take turns on the cores, so there a call has every other strategy:
/// an even `number` those at even places, an odd `number` the rest.
inline std::vector<ParallelConfig> strategies_in_turns(Rank ranks, Rank data, std::size_t number) {
  std::vector<ParallelConfig> const all = strategies(data);
  if (ranks <= 4) return all;
  std::vector<ParallelConfig> half;
  for (std::size_t i = number % 2; i < all.size(); i += 2) half.push_back(all[i]);
  return half;
}

/// The configuration with a strategy of `strategies`, on the same stages and tensor ranks.
inline void set_strategy(RunConfig& config, ParallelConfig const& strategy) {
  config.parallel.strategy = strategy.strategy;
  config.parallel.zero_stage = strategy.zero_stage;
  config.parallel.shard_group = strategy.shard_group;
}

} // namespace trainstone::test
