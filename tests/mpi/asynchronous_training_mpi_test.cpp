// Workers that do not wait for each other: the order is the planned one or what has come, it can be repeated to the bit
// on one rank, and what is counted is what was planned.

#include "train/asynchronous_training.hpp"

#include "comm/execution/control.hpp"
#include "core/error.hpp"
#include "parallel/engine/parameter_hash.hpp"
#include "support/training_run.hpp"
#include "train/repeated_training.hpp"
#include "train/verification/push_checks.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <algorithm>
#include <map>
#include <numeric>
#include <vector>

using namespace trainstone;
using namespace trainstone::test;

namespace {

constexpr std::int64_t steps = 4;
GptConfig const small{2, 3, 12, 11, 29};

RunConfig config_of(Rank ranks, Rank servers, ServerOrder order, std::optional<Index> staleness) {
  RunConfig config = training_config(small, {1, 2, 2 * (ranks - servers)});
  config.parallel.strategy = Strategy::parameter_server;
  config.parallel.reduction = ReductionMode::ordered;
  config.parallel.servers = servers;
  config.parallel.server_mode = staleness ? ServerMode::bounded : ServerMode::async;
  config.parallel.staleness = staleness.value_or(0);
  config.parallel.server_order = order;
  return config;
}

struct Finished {
  ServerRecord record;
  std::vector<double> held_out; ///< after every pause
  std::uint64_t hash = 0;
};

void append(ServerRecord& all, ServerRecord const& more) {
  all.acts.insert(all.acts.end(), more.acts.begin(), more.acts.end());
  all.pushes.insert(all.pushes.end(), more.pushes.begin(), more.pushes.end());
}

/// To the end, with a held-out loss after every second step.
Finished train(Communicator& world, RunConfig const& config) {
  ExecutionSpace const exec;
  ResolvedRun const all = resolve_run(config, world.topology());
  Rank const me = world.rank(), worker = worker_of(all, me);
  ResolvedRun const one_worker = with_one_worker(all, worker);
  RunPlan const plan = plan_with_servers(all, worker, me);
  MemoryLedger ledger;
  ServerPolicy const policy = server_policy(all, steps, 2);
  TrainingBatches const batches = training_batches(small.vocab);
  AsynchronousTraining training(exec, world, ledger, all, one_worker, plan, batches, steps, policy,
                                ServerClocks(policy));
  counters() = {};
  comm_counters() = {};
  Finished finished;
  std::vector<ServerRecord> parts;
  RecordWalk walk(policy.workers);
  while (!training.is_over()) {
    parts.push_back(training.train().record);
    append(finished.record, parts.back());
    walk.add(parts.back());
    finished.held_out.push_back(training.validate());
  }
  for (Check const& check : check_pushes(walk, policy)) CHECK_FALSE(check.failed());
  CHECK(check_pushes(walk, policy).size() == (policy.threshold ? 3 : 1));
  auto const validated = static_cast<std::int64_t>(parts.size()) * batches.validation_batches;
  ServedTraffic const sent = served_traffic(all, parts, 0, validated, me);
  CHECK(comm_counters().total(Purpose::training) == sent.training);
  CHECK(comm_counters().total(Purpose::control) == sent.control);
  CHECK(ledger.high_water() == plan.memory_bytes());
  auto const pushes = static_cast<std::uint64_t>(plan.computes() ? walk.pushes(me) : walk.pushes());
  auto const evaluated = static_cast<std::uint64_t>(validated * plan.accumulation);
  CHECK(counters().flops[Phase::gemm] == pushes * plan.step_flops.gemm + evaluated * plan.evaluation_flops.gemm);
  CHECK(total_launches(counters()) ==
        pushes * (plan.step_launches + plan.update_launches) + evaluated * plan.evaluation_launches);
  std::vector<std::uint64_t> const hashes = training.parameter_hashes();
  for (std::uint64_t const hash : hashes) CHECK(hash == hashes.front());
  finished.hash = hashes.front();
  return finished;
}

/// On one rank alone.
std::uint64_t repeat(Communicator& alone, RunConfig const& config, Rank workers, ServerRecord const& record) {
  RepeatedTraining repeated(ExecutionSpace(), alone, config, workers, training_batches(small.vocab), steps);
  std::size_t push = 0;
  for (ServerAct const& act : record.acts) {
    repeated.repeat(act);
    if (act.answers) continue;
    CHECK(repeated.last().loss == record.pushes.at(push).loss);
    CHECK(repeated.last().norm == record.pushes.at(push).norm);
    ++push;
  }
  return parameter_hash(ExecutionSpace(), repeated.trainer().engine());
}

/// Every push of a worker once, in order; who is answered is no more ahead than the staleness; and what that bounds.
void check_record(ServerRecord const& record, ServerPolicy const& policy) {
  std::vector<Index> clocks(static_cast<std::size_t>(policy.workers), 0), seen = clocks, gaps = clocks;
  std::size_t push = 0;
  for (auto const& [answers, worker] : record.acts) {
    auto const w = static_cast<std::size_t>(worker);
    auto const applied = std::accumulate(clocks.begin(), clocks.end(), Index{0});
    if (answers) {
      gaps[w] = clocks[w] - std::ranges::min(clocks);
      seen[w] = applied;
      CHECK(gaps[w] <= policy.threshold.value_or(policy.pushes));
      continue;
    }
    AppliedPush const& found = record.pushes.at(push++);
    CHECK(found.worker == worker);
    CHECK(found.clock == clocks[w]++);
    CHECK(found.gap == gaps[w]);
    CHECK(found.staleness == applied - seen[w]);
    CHECK(found.staleness <= staleness_bound(policy).value_or(policy.pushes));
  }
  CHECK(push == record.pushes.size());
  CHECK(static_cast<Index>(push) == policy.pushes);
}

} // namespace

TEST_CASE("a planned order is that of every run, and repeats to the bit on one rank", "[mpi][servers]") {
  Rank const ranks = Communicator::world().size();
  Rank const servers = GENERATE(1, 2, 3);
  std::optional<Index> const staleness =
      GENERATE(std::optional<Index>(), std::optional<Index>(0), std::optional<Index>(1));
  if (servers >= ranks) return;
  Communicator world = Communicator::world();
  RunConfig config = config_of(ranks, servers, ServerOrder::planned, staleness);
  if (GENERATE(false, true)) { // then others wait for a worker that pushes late, with parameters that become old
    config.faults.straggler_rank = ranks - servers - 1;
    config.faults.straggler_factor = 10;
  } else {
    config.faults.straggler_sigma = 0.5;
  }
  Finished const first = train(world, config), second = train(world, config);
  CHECK(first.record.acts == second.record.acts);
  CHECK(first.hash == second.hash);
  CHECK(first.held_out == second.held_out);
  check_record(first.record, server_policy(resolve_run(config, world.topology()), steps, 2));
  Communicator alone = world.split(world.rank());
  if (world.rank() == 0) CHECK(repeat(alone, config, ranks - servers, first.record) == first.hash);
}

TEST_CASE("pushes that are taken as they come repeat to the bit on one rank", "[mpi][servers]") {
  Rank const ranks = Communicator::world().size();
  Rank const servers = ranks > 3 ? GENERATE(1, 2) : 1;
  std::optional<Index> const staleness =
      GENERATE(std::optional<Index>(), std::optional<Index>(0), std::optional<Index>(2));
  if (servers >= ranks) return;
  Communicator world = Communicator::world();
  RunConfig config = config_of(ranks, servers, ServerOrder::arrival, staleness);
  config.faults.pace_forward = 1e-3;
  config.faults.straggler_sigma = 0.5;
  Finished const found = train(world, config);
  check_record(found.record, server_policy(resolve_run(config, world.topology()), steps, 2));
  Communicator alone = world.split(world.rank());
  if (world.rank() == 0) CHECK(repeat(alone, config, ranks - servers, found.record) == found.hash);
}

TEST_CASE("any number of servers ends with the same bits", "[mpi][servers]") {
  Rank const ranks = Communicator::world().size();
  if (ranks < 4) return;
  Communicator world = Communicator::world();
  std::vector<std::uint64_t> hashes;
  for (Rank const servers : {1, 2}) {
    std::optional<Communicator> const part = world.first(2 + servers);
    if (part) {
      Communicator own = part->split(0);
      hashes.push_back(train(own, config_of(2 + servers, servers, ServerOrder::planned, {})).hash);
    }
    barrier(world);
  }
  if (world.rank() < 3) CHECK(hashes[0] == hashes[1]);
}
