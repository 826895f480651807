#include "lectures/taught_servers.hpp"

#include "comm/algorithms/registry.hpp"
#include "comm/schedule/counters.hpp"
#include "comm/simulation/simulator.hpp"
#include "core/error.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <random>

namespace trainstone {

namespace {

constexpr double bandwidth = 1e10;         // bytes/s, of every port
constexpr Index elements = Index{1} << 18; // fp32: 1 MiB
constexpr std::size_t element_bytes = 4;

Problem problem_of(Collective collective, Rank workers, Rank servers) {
  return even_problem(collective, elements, Topology::one_node(workers + servers), 0, servers);
}

ServersRow count(Rank workers, Rank servers) {
  MachineModel const machine = uniform_machine({.alpha = 0, .beta = 1 / bandwidth, .gamma = 0});
  ServersRow row{.servers = servers,
                 .worker_sent = 0,
                 .server_sent = 0,
                 .all_sent = 0,
                 .taught_seconds = static_cast<double>(elements * element_bytes) * workers / bandwidth,
                 .push_seconds = price(problem_of(Collective::server_push, workers, servers), Algorithm::direct,
                                       element_bytes, machine),
                 .step_seconds = 0};
  row.step_seconds = row.push_seconds + price(problem_of(Collective::server_pull, workers, servers), Algorithm::direct,
                                              element_bytes, machine);
  for (Collective const collective : {Collective::server_push, Collective::server_pull}) {
    Problem const problem = problem_of(collective, workers, servers);
    for (Rank rank = 0; rank < problem.ranks(); ++rank) {
      std::uint64_t const sent =
          predict_traffic(make_schedule(problem, Algorithm::direct, rank), problem.topology, element_bytes).bytes;
      row.all_sent += sent;
      if (rank == 0) row.worker_sent += sent;
      if (rank + 1 == problem.ranks()) row.server_sent += sent;
    }
  }
  return row;
}

TransfersRow transfer(Index count, LayerTimes const& times) {
  std::vector<LayerTimes> const layers(static_cast<std::size_t>(count), times);
  return {.layers = count,
          .times = times,
          .fifo = play_transfers(layers, TransferOrder::fifo, 0).end,
          .whole_layers = play_transfers(layers, TransferOrder::priority, 0).end,
          .slices = play_transfers(layers, TransferOrder::priority, 1).end,
          .least = least_transfer_time(layers)};
}

constexpr Rank racing_workers = 4;
constexpr Index racing_clocks = 1000;
constexpr double usual_ticks = 1000;

/// How long each worker's computations take, in usual times, and what closed forms say of it.
struct Race {
  std::string name;
  std::vector<double> slower; ///< by worker
  double deviation = 0;       ///< of the logarithm of a random factor, whose mean is 1
};

/// A standard normal number of two uniform ones: the generator is the same everywhere, distributions are not.
double normal(std::mt19937_64& random) {
  auto const uniform = [&] { return (static_cast<double>(random() >> 11) + 1) * 0x1p-53; };
  double const radius = std::sqrt(-2 * std::log(uniform()));
  return radius * std::cos(2 * std::numbers::pi * uniform());
}

std::vector<std::vector<ServerTicks>> ticks_of(Race const& race) {
  std::mt19937_64 random(1);
  std::vector<std::vector<ServerTicks>> ticks;
  for (double const slower : race.slower) {
    std::vector<ServerTicks>& of_worker = ticks.emplace_back();
    for (Index clock = 0; clock < racing_workers * racing_clocks; ++clock) {
      double const factor =
          race.deviation == 0 ? 1 : std::exp(race.deviation * normal(random) - race.deviation * race.deviation / 2);
      of_worker.push_back(std::max<ServerTicks>(1, std::llround(usual_ticks * slower * factor)));
    }
  }
  return ticks;
}

StragglersRow run(Race const& race, std::optional<Index> staleness) {
  auto const ticks = ticks_of(race);
  ServerPolicy const policy{racing_workers, staleness, racing_workers * racing_clocks};
  PlannedOrder const order = planned_order(policy, [&](Rank worker, Index clock) {
    return ticks[static_cast<std::size_t>(worker)][static_cast<std::size_t>(clock)];
  });
  double waiting = 0, rates = 0;
  for (ServerTicks const one : order.waiting) waiting += static_cast<double>(one);
  for (double const slower : race.slower) rates += 1 / slower;
  auto const time = static_cast<double>(order.end);
  StragglersRow row{.stragglers = race.name,
                    .staleness = staleness,
                    .pushes = static_cast<double>(policy.pushes) * usual_ticks / time,
                    .formula = std::nullopt,
                    .largest_gap = order.clocks.largest_gap(),
                    .largest_staleness = std::ssize(order.clocks.pushes_by_staleness()) - 1,
                    .staleness_bound = staleness_bound(policy),
                    .waiting_share = waiting / (time * racing_workers)};
  if (race.deviation == 0 && staleness == Index{0}) row.formula = racing_workers / std::ranges::max(race.slower);
  if (race.deviation == 0 && !staleness) row.formula = rates;
  return row;
}

} // namespace

TaughtServers compare_taught_servers(Rank workers) {
  TRAINSTONE_REQUIRE_INPUT(workers >= 1 && workers <= most_taught_workers, "{} workers: a lecture compares 1 to {}",
                           workers, most_taught_workers);
  TaughtServers lecture{.workers = workers,
                        .bytes = static_cast<double>(elements * element_bytes),
                        .bandwidth = bandwidth,
                        .counts = {},
                        .layers = std::vector<LayerTimes>(3, {.forward = 1, .backward = 2, .transfer = 3}),
                        .fifo = {},
                        .priority = {},
                        .transfers = {},
                        .racing_workers = racing_workers,
                        .stragglers = {}};
  for (Rank const servers : {1, 2, 4}) lecture.counts.push_back(count(workers, servers));
  lecture.fifo = play_transfers(lecture.layers, TransferOrder::fifo, 0);
  lecture.priority = play_transfers(lecture.layers, TransferOrder::priority, 1);
  lecture.transfers = {transfer(3, {1, 2, 3}), transfer(12, {1, 2, 3}), transfer(12, {1, 2, 6}),
                       transfer(12, {1, 2, 1})};
  for (Race const& race : {Race{"none", {1, 1, 1, 1}, 0}, Race{"one is 4 times slower", {1, 1, 1, 4}, 0},
                           Race{"random, sigma 0.5", {1, 1, 1, 1}, 0.5}})
    for (std::optional<Index> const staleness :
         {std::optional<Index>(0), std::optional<Index>(1), std::optional<Index>(4), std::optional<Index>()})
      lecture.stragglers.push_back(run(race, staleness));
  return lecture;
}

} // namespace trainstone
