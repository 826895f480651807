// What is checked of the pushes that servers have noted: every mutation of a right record is found.

#include "parallel/servers/planned_order.hpp"
#include "train/verification/push_checks.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <algorithm>
#include <functional>
#include <random>

using namespace trainstone;

namespace {

/// What servers note of a planned order, whose acts need not follow the rule of `policy`.
ServerRecord record_of(ServerPolicy const& policy, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<ServerTicks> length(1, 20);
  PlannedOrder const order = planned_order(policy, [&](Rank, Index) { return length(random); });
  ServerClocks clocks(policy);
  ServerRecord record;
  std::vector<Index> gaps(static_cast<std::size_t>(policy.workers), 0);
  for (ServerEvent const& event : order.events) {
    bool const answers = event.kind == ServerEvent::Kind::answer;
    record.acts.push_back({answers, event.worker});
    auto const worker = static_cast<std::size_t>(event.worker);
    if (answers) {
      gaps[worker] = clocks.answer(event.worker);
      continue;
    }
    Index const staleness = clocks.apply(event.worker);
    record.pushes.push_back(
        {.worker = event.worker, .clock = event.clock, .staleness = staleness, .gap = gaps[worker]});
  }
  return record;
}

std::vector<Check> checks_of(ServerRecord const& record, ServerPolicy const& policy) {
  RecordWalk walk(policy.workers);
  walk.add(record);
  return check_pushes(walk, policy);
}

bool all_pass(std::vector<Check> const& checks) { return std::ranges::none_of(checks, &Check::failed); }

} // namespace

TEST_CASE("a right record passes, and every change of it is found", "[servers][verification]") {
  std::optional<Index> const threshold =
      GENERATE(std::optional<Index>(), std::optional<Index>(0), std::optional<Index>(2));
  ServerPolicy const policy{.workers = 3, .threshold = threshold, .pushes = 30};
  ServerRecord const right = record_of(policy, 5);
  CHECK(all_pass(checks_of(right, policy)));
  auto const passes = [&](std::function<void(ServerRecord&)> const& change) {
    ServerRecord changed = right;
    change(changed);
    return all_pass(checks_of(changed, policy));
  };
  for (std::size_t i = 0; i < right.acts.size(); ++i) {
    CHECK_FALSE(passes([&](ServerRecord& record) { record.acts.erase(record.acts.begin() + static_cast<int>(i)); }));
    CHECK_FALSE(passes(
        [&](ServerRecord& record) { record.acts.insert(record.acts.begin() + static_cast<int>(i), right.acts[i]); }));
    CHECK_FALSE(passes([&](ServerRecord& record) { record.acts[i].worker = (record.acts[i].worker + 1) % 3; }));
  }
  for (std::size_t i = 0; i < right.pushes.size(); ++i) {
    CHECK_FALSE(passes([&](ServerRecord& record) { ++record.pushes[i].clock; }));
    CHECK_FALSE(passes([&](ServerRecord& record) { ++record.pushes[i].staleness; }));
    CHECK_FALSE(passes([&](ServerRecord& record) { ++record.pushes[i].gap; }));
    CHECK_FALSE(
        passes([&](ServerRecord& record) { record.pushes.erase(record.pushes.begin() + static_cast<int>(i)); }));
  }
}

TEST_CASE("servers that answer one push too early fail their check", "[servers][verification]") {
  for (Index const threshold : {0, 1, 3}) {
    ServerPolicy const promised{.workers = 4, .threshold = threshold, .pushes = 200};
    ServerPolicy lenient = promised;
    lenient.threshold = threshold + 1;
    std::vector<Check> const checks = checks_of(record_of(lenient, 7), promised);
    CHECK(checks.at(0).passed); // each push is applied once
    CHECK(checks.at(1).name == "clock-gap");
    CHECK(checks.at(1).failed());
    CHECK(all_pass(checks_of(record_of(promised, 7), promised)));
  }
}
