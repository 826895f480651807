// What commbench and calibrate stand on: how calls are timed, in which order, how often, and what is taken off.

#include "comm/execution/control.hpp"
#include "comm/measurement/fresh_data.hpp"
#include "core/error.hpp"

#include "support/world.hpp"

#include <catch2/catch_test_macros.hpp>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

using namespace trainstone;

TEST_CASE("calls are warmed up, then measured forth and back, equally often", "[mpi][timing]") {
  Communicator const communicator = Communicator::world();
  std::string order;
  std::vector<TimedCall> const calls{[&] { order += 'A'; }, [&] { order += 'B'; }, [&] { order += 'C'; }};
  auto const results = time_interleaved(communicator, calls, {.warmup_calls = 3, .samples = 4, .calls = 2});
  // three to warm up and two to see how long it takes, of each; then four passes of two calls
  CHECK(order == "AAAAABBBBBCCCCC"
                 "AABBCC"
                 "CCBBAA"
                 "AABBCC"
                 "CCBBAA");
  for (TimedSamples const& result : results) {
    CHECK(result.seconds.size() == 4);
    CHECK(result.calls == 2);
  }
}

TEST_CASE("a sample is the slowest rank's time, and the same on all ranks", "[mpi][timing]") {
  Communicator const communicator = Communicator::world();
  Rank const slow = communicator.size() - 1;
  auto const pause = std::chrono::milliseconds(3);
  std::vector<TimedCall> const calls{[&] {
    if (communicator.rank() == slow) std::this_thread::sleep_for(pause);
  }};
  auto const results = time_interleaved(communicator, calls, {.warmup_calls = 0, .samples = 2, .calls = 2});
  for (double const seconds : results[0].seconds) {
    CHECK(seconds >= std::chrono::duration<double>(pause).count());
    for (double const other : all_gather_values(communicator, seconds)) CHECK(other == seconds);
  }
}

TEST_CASE("a sample has as many calls as fill it, and twenty of calls that are not much longer", "[timing]") {
  TimingOptions const options{.sample_seconds = 2e-3};
  CHECK(calls_of_sample(0, options) == 1'000'000);
  CHECK(calls_of_sample(1.5e-6, options) == 1334);
  CHECK(calls_of_sample(0.9e-4, options) == 23);
  CHECK(calls_of_sample(1.1e-4, options) == 20);
  CHECK(calls_of_sample(0.9e-3, options) == 20);
  CHECK(calls_of_sample(3.9e-3, options) == 5); // ten times the sample's time
  CHECK(calls_of_sample(0.03, options) == 1);
  CHECK(calls_of_sample(1000, options) == 1);
}

TEST_CASE("the number of calls follows the time, alike on all ranks", "[mpi][timing]") {
  Communicator const communicator = Communicator::world();
  std::vector<TimedCall> const calls{[] {}, [] { std::this_thread::sleep_for(std::chrono::milliseconds(30)); }};
  auto const results = time_interleaved(communicator, calls, {.warmup_calls = 0, .samples = 2});
  CHECK(results[0].calls >= 1);
  CHECK(results[1].calls == 1);
  for (int const other : all_gather_values(communicator, results[0].calls)) CHECK(other == results[0].calls);
  CHECK_THROWS_AS(time_interleaved(communicator, calls, {.samples = 3}), Error);
}

TEST_CASE("a fresh call finds written data, its result is read, and both are done once more without it",
          "[mpi][timing]") {
  Communicator const communicator = Communicator::world();
  std::string order;
  auto const note = [&order](char what) { return TimedCall([&order, what] { order += what; }); };
  std::vector<FreshCall> const calls{{note('a'), note('A')}, {note('b'), note('B')}};
  auto const results =
      time_fresh(communicator, calls, note('w'), note('r'), {.warmup_calls = 0, .samples = 2, .calls = 1});
  REQUIRE(results.size() == 2);
  for (TimedSamples const& one : results)
    for (double const seconds : one.seconds) CHECK(seconds > 0); // whatever was taken off
  // twice each to see how long they take, then to and fro
  CHECK(order == "waAwaAwbBwbBwrwr"
                 "waAwbBwr"
                 "wrwbBwaA");
}

TEST_CASE("a fresh call does not look fast because what is taken off was interrupted once", "[mpi][timing]") {
  Communicator const communicator = Communicator::world();
  auto const pause = std::chrono::milliseconds(60);
  int reads = 0;
  TimedCall const nothing = [] {}, interrupted_once = [&] {
    if (++reads == 3) std::this_thread::sleep_for(2 * pause);
  };
  std::vector<FreshCall> const calls{{[&] { std::this_thread::sleep_for(pause); }, nothing}};
  auto const results =
      time_fresh(communicator, calls, nothing, interrupted_once, {.warmup_calls = 0, .samples = 4, .calls = 1});
  for (double const seconds : results[0].seconds) CHECK(seconds > std::chrono::duration<double>(pause).count() / 2);
}
