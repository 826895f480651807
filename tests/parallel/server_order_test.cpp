// Clocks of workers, the planned order of their pushes, and the order of transfers on a worker's link.

#include "core/error.hpp"
#include "parallel/servers/planned_order.hpp"
#include "parallel/servers/recorded_pushes.hpp"
#include "parallel/servers/transfer_order.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <optional>
#include <random>
#include <string>

using namespace trainstone;

namespace {

using Times = std::vector<std::vector<ServerTicks>>; ///< by worker, by clock

Times random_times(Rank workers, Index clocks, ServerTicks longest, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<ServerTicks> length(1, longest);
  Times times(static_cast<std::size_t>(workers));
  for (auto& of_worker : times)
    for (Index clock = 0; clock < clocks; ++clock) of_worker.push_back(length(random));
  return times;
}

PlannedOrder plan(ServerPolicy const& policy, Times const& times) {
  return planned_order(policy, [&](Rank worker, Index clock) {
    return times[static_cast<std::size_t>(worker)][static_cast<std::size_t>(clock)];
  });
}

/// The same from the definition, tick by tick.
std::vector<ServerEvent> tick_by_tick(ServerPolicy const& policy, Times const& times) {
  auto const workers = static_cast<std::size_t>(policy.workers);
  std::vector<Index> clocks(workers, 0);
  std::vector<ServerTicks> left(workers, 0); // 0: waits
  std::vector<ServerEvent> events;
  Index applied = 0, granted = 0, pauses = 0;
  for (ServerTicks now = 0; applied < policy.pushes; ++now) {
    for (std::size_t w = 0; w < workers; ++w)
      if (left[w] > 0 && --left[w] == 0) {
        events.push_back({ServerEvent::Kind::apply, static_cast<Rank>(w), clocks[w]++, now});
        ++applied;
      }
    if (policy.pause_every > 0 && applied == (pauses + 1) * policy.pause_every) ++pauses;
    Index const allowed = policy.pause_every > 0 ? (pauses + 1) * policy.pause_every : policy.pushes;
    for (std::size_t w = 0; w < workers; ++w) {
      Index const gap = clocks[w] - *std::ranges::min_element(clocks);
      if (left[w] > 0 || granted == std::min(allowed, policy.pushes) || (policy.threshold && gap > *policy.threshold))
        continue;
      events.push_back({ServerEvent::Kind::answer, static_cast<Rank>(w), clocks[w], now});
      left[w] = times[w][static_cast<std::size_t>(clocks[w])];
      ++granted;
    }
  }
  while (events.back().kind == ServerEvent::Kind::answer) events.pop_back(); // of nobody
  return events;
}

} // namespace

TEST_CASE("the planned order is that of the definition, tick by tick", "[parallel][servers]") {
  Rank const workers = GENERATE(1, 2, 3, 5);
  std::optional<Index> const staleness =
      GENERATE(std::optional<Index>(), std::optional<Index>(0), std::optional<Index>(1), std::optional<Index>(4));
  for (unsigned seed = 0; seed < 20; ++seed) {
    Times const times = random_times(workers, 40, 7, seed);
    for (Index const pause_every : {0, 7, 10, 50}) {
      ServerPolicy const policy{workers, staleness, 40, pause_every};
      CHECK(plan(policy, times).events == tick_by_tick(policy, times));
    }
  }
}

TEST_CASE("every push is applied once, no gap exceeds the bound, and no staleness its own", "[parallel][servers]") {
  Rank const workers = GENERATE(1, 2, 3, 4, 7);
  Index const staleness = GENERATE(0, 1, 2, 5);
  ServerPolicy const policy{workers, staleness, 60 * workers};
  Index largest = 0, largest_gap = 0;
  for (unsigned seed = 0; seed < 50; ++seed) {
    PlannedOrder const order = plan(policy, random_times(workers, policy.pushes, seed % 2 == 0 ? 30 : 4, seed));
    ServerClocks const& clocks = order.clocks;
    CHECK(clocks.applied() == policy.pushes);
    Index sum = 0;
    for (Rank worker = 0; worker < workers; ++worker) sum += clocks.clock(worker);
    CHECK(sum == policy.pushes);
    CHECK(std::accumulate(clocks.pushes_by_staleness().begin(), clocks.pushes_by_staleness().end(), Index{0}) ==
          policy.pushes);
    CHECK(clocks.largest_gap() <= staleness);
    CHECK(std::ssize(clocks.pushes_by_staleness()) - 1 <= *staleness_bound(policy));
    largest = std::max(largest, static_cast<Index>(std::ssize(clocks.pushes_by_staleness())) - 1);
    largest_gap = std::max(largest_gap, clocks.largest_gap());
  }
  if (workers > 1) CHECK(largest_gap == staleness);
  if (workers == 1) CHECK(largest == 0);
}

TEST_CASE("the bound of staleness is reached", "[parallel][servers]") {
  // Workers 1 and 2 are s = 1 behind when worker 0 is answered, and s + 1 ahead when its push is applied.
  ServerPolicy const policy{3, 1, 30};
  PlannedOrder const order =
      plan(policy, {{1, 100, 1000, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1},
                    {2, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10},
                    {2, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10}});
  CHECK(std::ssize(order.clocks.pushes_by_staleness()) - 1 == *staleness_bound(policy));
}

TEST_CASE("rounds take the sum of their longest pushes, and without a bound nobody waits", "[parallel][servers]") {
  Times const times = random_times(4, 200, 50, 3);
  ServerTicks rounds = 0;
  for (std::size_t clock = 0; clock < 50; ++clock) {
    ServerTicks longest = 0;
    for (auto const& of_worker : times) longest = std::max(longest, of_worker[clock]);
    rounds += longest;
  }
  CHECK(plan({4, 0, 200}, times).end == rounds);

  PlannedOrder const free = plan({4, std::nullopt, 200}, times);
  CHECK(free.end < rounds);
  for (std::size_t worker = 0; worker < 4; ++worker) { // but when no push is needed any more
    ServerTicks busy = 0;
    for (Index clock = 0; clock < free.clocks.clock(static_cast<Rank>(worker)); ++clock)
      busy += times[worker][static_cast<std::size_t>(clock)];
    CHECK(free.waiting[worker] == free.end - busy);
    CHECK(free.waiting[worker] <= 50);
  }
}

TEST_CASE("equal workers in a fixed order have a staleness of W - 1", "[parallel][servers]") {
  for (Rank const workers : {2, 3, 5}) {
    PlannedOrder const order = plan({workers, std::nullopt, 20 * workers},
                                    Times(static_cast<std::size_t>(workers), std::vector<ServerTicks>(100, 4)));
    // all are answered at once: the first one's push meets no other one, the last one's meets all
    std::vector<Index> expected(static_cast<std::size_t>(workers), 20);
    CHECK(order.clocks.pushes_by_staleness() == expected);
  }
}

namespace {

/// |x| after gradient descent on x^2 / 2 by workers whose pushes come one after the other, each computed from an x that
/// is `workers` - 1 pushes old.
double distance_after(Rank workers, double rate, Index pushes) {
  PlannedOrder const order = planned_order({workers, std::nullopt, pushes}, [&](Rank worker, Index clock) {
    return clock == 0 ? ServerTicks{worker} + 1 : ServerTicks{workers};
  });
  CHECK(std::ssize(order.clocks.pushes_by_staleness()) == workers);
  CHECK(order.clocks.pushes_by_staleness().back() >= pushes - workers); // but for the first ones
  double x = 1;
  std::vector<double> answered(static_cast<std::size_t>(workers), x);
  for (ServerEvent const& event : order.events) {
    double& seen = answered[static_cast<std::size_t>(event.worker)];
    if (event.kind == ServerEvent::Kind::answer)
      seen = x;
    else
      x -= rate * seen;
  }
  return std::abs(x);
}

} // namespace

TEST_CASE("stale descent on a quadratic converges below the rate 2 sin(pi / (2 (2 tau + 1))), and not above",
          "[parallel][servers]") {
  for (Rank const workers : {1, 2, 3, 5, 8}) {
    Index const staleness = workers - 1;
    double const limit = 2 * std::sin(std::numbers::pi / (2 * (2 * static_cast<double>(staleness) + 1)));
    INFO("staleness " << staleness);
    CHECK(distance_after(workers, 0.97 * limit, 4000) < 1e-3);
    CHECK(distance_after(workers, 1.03 * limit, 4000) > 1e3);
  }
}

TEST_CASE("before a pause nobody computes more than is applied, and clocks go on after it", "[parallel][servers]") {
  ServerClocks clocks({2, std::nullopt, 5, 3});
  for (Rank const worker : {0, 1}) CHECK(clocks.answer(worker) == 0);
  clocks.apply(0);
  CHECK(clocks.answer(0) == 1);
  clocks.apply(0);
  CHECK_FALSE(clocks.may_answer(0)); // the pause is due when worker 1's push was applied
  CHECK_FALSE(clocks.is_paused());
  CHECK_THROWS_AS(clocks.resume(), Error);
  CHECK(clocks.apply(1) == 2);
  CHECK(clocks.is_paused());
  CHECK_FALSE(clocks.may_answer(1));
  clocks.resume();
  CHECK(clocks.clock(0) == 2);
  CHECK(clocks.answer(1) == 0);
  CHECK(clocks.answer(0) == 1);
  clocks.apply(1);
  clocks.apply(0);
  CHECK(clocks.is_over());
  CHECK_THROWS_AS(clocks.resume(), Error);
}

TEST_CASE("from any pause a planned order goes on as it would have", "[parallel][servers]") {
  Rank const workers = GENERATE(1, 2, 3, 5);
  for (std::optional<Index> const threshold :
       {std::optional<Index>(0), std::optional<Index>(2), std::optional<Index>()}) {
    ServerPolicy const policy{
        .workers = workers, .threshold = threshold, .pushes = 8 * workers, .pause_every = 2 * workers};
    Times const times = random_times(workers, 8 * workers, 9, 5);
    PlannedOrder const whole = plan(policy, times);
    std::vector<ServerAct> acts;
    Index applied = 0;
    for (ServerEvent const& event : whole.events) {
      acts.push_back({event.kind == ServerEvent::Kind::answer, event.worker});
      if (acts.back().answers || ++applied % policy.pause_every != 0) {
        if (!acts.back().answers) CHECK_THROWS_AS(recorded_pushes(policy, acts), InputError); // not in a pause
        continue;
      }
      RecordedPushes const recorded = recorded_pushes(policy, acts);
      CHECK(recorded.clocks.applied() == applied);
      CHECK(std::ssize(recorded.parts) == applied / policy.pause_every);
      PlannedOrder const rest = planned_order(
          policy,
          [&](Rank worker, Index clock) {
            return times[static_cast<std::size_t>(worker)][static_cast<std::size_t>(clock)];
          },
          recorded.clocks);
      std::vector<ServerAct> joined = acts;
      for (ServerEvent const& later : rest.events)
        joined.push_back({later.kind == ServerEvent::Kind::answer, later.worker});
      std::vector<ServerAct> all;
      for (ServerEvent const& one : whole.events) all.push_back({one.kind == ServerEvent::Kind::answer, one.worker});
      CHECK(joined == all);
    }
  }
}

TEST_CASE("acts that a training does not allow are refused by the first of them", "[parallel][servers]") {
  ServerPolicy const policy{.workers = 2, .threshold = 0, .pushes = 4, .pause_every = 2};
  auto const refusal = [&](std::vector<ServerAct> const& acts) {
    try {
      recorded_pushes(policy, acts);
    } catch (InputError const& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  ServerAct const to_0{true, 0}, to_1{true, 1}, of_0{false, 0}, of_1{false, 1};
  CHECK(refusal({}) == "accepted");
  CHECK(refusal({to_0, to_1, of_1, of_0}) == "accepted");
  CHECK(refusal({to_0, of_0, to_0}) == "after 1 pushes, servers answer worker 0, which this training does not allow");
  CHECK(refusal({of_1}) == "after 0 pushes, servers apply a push of worker 1, which this training does not allow");
  CHECK(refusal({to_0, to_1, of_0}) == "servers did not pause after 1 pushes");
  CHECK(refusal({{true, 2}}) == "there are 2 workers, and no worker 2");
  std::vector<ServerAct> const whole{to_0, to_1, of_0, of_1, to_0, to_1, of_0, of_1};
  CHECK(refusal(whole) == "accepted");
  std::vector<ServerAct> more = whole;
  more.push_back(to_0);
  CHECK(refusal(more) == "servers did more than 4 pushes need");
}

TEST_CASE("what nobody may do is refused", "[parallel][servers]") {
  ServerClocks clocks({2, 0, 3});
  CHECK_THROWS_AS(clocks.apply(0), Error);
  clocks.answer(0);
  CHECK_THROWS_AS(clocks.answer(0), Error); // it computes
  CHECK(clocks.apply(0) == 0);
  CHECK_FALSE(clocks.may_answer(0)); // worker 1 is behind
  clocks.answer(1);
  CHECK(clocks.apply(1) == 0);
  clocks.answer(0);
  CHECK_FALSE(clocks.may_answer(1)); // three pushes are enough
  clocks.apply(0);
  CHECK(clocks.is_over());
  CHECK_THROWS_AS(ServerClocks({0, 0, 1}), Error);
  CHECK_THROWS_AS(ServerClocks({1, -1, 1}), Error);
}

TEST_CASE("priority with slices reaches the least time that whole layers miss", "[parallel][servers]") {
  auto const layers = [](std::size_t count, std::int64_t transfer) {
    return std::vector<LayerTimes>(count, {.forward = 1, .backward = 2, .transfer = transfer});
  };
  struct Row {
    std::vector<LayerTimes> layers;
    std::int64_t fifo, whole, slices;
  };
  for (Row const& row :
       {Row{layers(3, 3), 14, 14, 12}, Row{layers(12, 3), 50, 41, 39}, Row{layers(12, 6), 86, 76, 75}}) {
    CHECK(play_transfers(row.layers, TransferOrder::fifo, 0).end == row.fifo);
    CHECK(play_transfers(row.layers, TransferOrder::fifo, 1).end == row.fifo);
    CHECK(play_transfers(row.layers, TransferOrder::priority, 0).end == row.whole);
    CHECK(play_transfers(row.layers, TransferOrder::priority, 1).end == row.slices);
    CHECK(least_transfer_time(row.layers) == row.slices);
  }
}

TEST_CASE("no order transfers more or less, uses the link twice, or begins what is not ready", "[parallel][servers]") {
  std::mt19937 random(7);
  std::uniform_int_distribution<std::int64_t> length(1, 9);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<LayerTimes> layers(static_cast<std::size_t>(length(random)));
    for (LayerTimes& one : layers) one = {length(random), length(random), length(random)};
    for (TransferOrder const order : {TransferOrder::fifo, TransferOrder::priority})
      for (std::int64_t const slice : {0, 1, 3}) {
        TransferTimeline const timeline = play_transfers(layers, order, slice);
        CHECK(timeline.end >= least_transfer_time(layers));
        std::vector<std::int64_t> moved(layers.size(), 0), done(layers.size(), 0);
        std::int64_t free = 0;
        for (LinkSlot const& slot : timeline.link) {
          auto const layer = static_cast<std::size_t>(slot.layer);
          CHECK(slot.begin >= std::max(free, timeline.backward[layers.size() - 1 - layer].end));
          free = slot.end;
          moved[layer] += slot.end - slot.begin;
          done[layer] = slot.end;
        }
        for (std::size_t layer = 0; layer < layers.size(); ++layer) {
          CHECK(moved[layer] == layers[layer].transfer);
          CHECK(timeline.forward[layer].begin >= done[layer]);
        }
      }
  }
}
