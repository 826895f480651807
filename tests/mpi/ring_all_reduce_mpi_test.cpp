// The ring all-reduce on real messages, against sums that every rank works out for itself. Values are small integers,
// so that every order of addition gives the same result and == is the right comparison.

#include "comm/control.hpp"
#include "comm/execution.hpp"
#include "comm/registry.hpp"
#include "comm/simulator.hpp"
#include "core/error.hpp"
#include "core/launch.hpp"
#include "support/traffic.hpp"

#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <thread>

using namespace trainstone;

namespace {

/// What rank `rank` puts in: different for every element and rank, sums exact in float for 8 ranks.
template <class T>
T contribution(Rank rank, Index i) {
  return static_cast<T>((rank + 1) * 1021 + 8 * i - (i % 3 == 0 ? 4000 : 0));
}

template <class T>
T expected_value(Operation operation, Rank ranks, Index i) {
  T result = contribution<T>(0, i);
  for (Rank rank = 1; rank < ranks; ++rank) {
    T const value = contribution<T>(rank, i);
    if (operation == Operation::sum) result += value;
    if (operation == Operation::max) result = std::max(result, value);
    if (operation == Operation::min) result = std::min(result, value);
  }
  return result;
}

template <class T>
std::vector<T> contributions(Rank rank, Index elements) {
  std::vector<T> values;
  for (Index i = 0; i < elements; ++i) values.push_back(contribution<T>(rank, i));
  return values;
}

/// Empty if all elements are as expected; else the first indices with both values.
template <class T>
std::string mismatch(std::vector<T> const& data, Operation operation, Rank ranks) {
  std::string text;
  for (std::size_t i = 0, count = 0; i < data.size() && count < 4; ++i) {
    T const expected = expected_value<T>(operation, ranks, static_cast<Index>(i));
    if (data[i] == expected) continue;
    text += fmt::format("[{}] {} instead of {}; ", i, data[i], expected);
    ++count;
  }
  return text;
}

template <class T>
Vector<T> view(std::vector<T>& values) {
  return Vector<T>(values.data(), values.size());
}

template <class T>
void all_reduce(Communicator& communicator, Partition const& partition, Operation operation, std::vector<T>& data,
                ExecutionOptions const& options = {}) {
  ExecutionSpace const exec;
  Schedule const schedule = make_schedule(Collective::all_reduce, Algorithm::ring, partition, communicator.rank());
  std::vector<T> scratch(static_cast<std::size_t>(schedule.scratch_elements));
  Execution(exec, communicator, schedule, operation, view(data), view(scratch), options).run();
  exec.fence("trainstone::test: the host reads the result");
}

std::vector<Partition> partitions(Rank ranks) {
  std::vector<Partition> all;
  for (Index const elements : {0, 1, 2, 3, 7, 1000, 1009}) all.push_back(Partition::even(elements, ranks));
  std::vector<Index> uneven;
  for (Rank rank = 0; rank < ranks; ++rank) uneven.push_back(rank % 3 == 1 ? 0 : 5 * rank + 1);
  all.push_back(Partition::of_sizes(uneven));
  return all;
}

Traffic counted() { return comm_counters().at(Purpose::training, Collective::all_reduce, Algorithm::ring); }

} // namespace

TEMPLATE_TEST_CASE("ring all-reduce equals the sum, the maximum and the minimum on odd counts", "[mpi][ring]", float,
                   double, std::int32_t, std::int64_t) {
  Communicator communicator = Communicator::world();
  for (Partition const& partition : partitions(communicator.size())) {
    for (Operation const operation : {Operation::sum, Operation::max, Operation::min}) {
      auto data = contributions<TestType>(communicator.rank(), partition.elements());
      all_reduce(communicator, partition, operation, data);
      INFO(partition.elements() << " elements, " << to_string(operation));
      CHECK(mismatch(data, operation, communicator.size()) == "");
    }
  }
}

TEST_CASE("messages and bytes counted equal the schedule, the simulator and the closed form", "[mpi][ring]") {
  Communicator communicator = Communicator::world();
  auto const n = static_cast<std::uint64_t>(communicator.size());
  for (Partition const& partition : partitions(communicator.size())) {
    auto const schedules = make_schedules(Collective::all_reduce, Algorithm::ring, partition);
    auto data = contributions<double>(communicator.rank(), partition.elements());
    comm_counters() = {};
    all_reduce(communicator, partition, Operation::sum, data);
    INFO(partition.elements() << " elements");
    CHECK(counted() == predict_traffic(schedules[static_cast<std::size_t>(communicator.rank())], sizeof(double)));

    Traffic total;
    for (Traffic const& traffic : all_gather_values(communicator, counted())) total += traffic;
    CollectiveCounts const simulated = count(schedules, sizeof(double));
    CHECK(total == simulated.total);
    CHECK(total.bytes == 2 * (n - 1) * static_cast<std::uint64_t>(partition.elements()) * sizeof(double));
    CHECK(comm_counters().total(Purpose::control) == Traffic{});
  }
}

TEST_CASE("a sum that rounds ends in the same bits on all ranks and in every run", "[mpi][ring]") {
  Communicator communicator = Communicator::world();
  Partition const partition = Partition::even(1009, communicator.size());
  std::vector<float> first;
  for (int run = 0; run < 3; ++run) {
    std::vector<float> data;
    for (int i = 0; i < 1009; ++i) data.push_back(std::sin(static_cast<float>(1000 * communicator.rank() + i)));
    all_reduce(communicator, partition, Operation::sum, data);
    if (run == 0) first = data;
    CHECK(data == first);
  }
  for (std::size_t i = 0; i < first.size(); i += 101) {
    for (float const other : all_gather_values(communicator, first[i])) CHECK(other == first[i]);
  }
}

TEST_CASE("long moves travel as several messages with the same result", "[mpi][ring]") {
  Communicator communicator = Communicator::world();
  Partition const partition = Partition::even(1009, communicator.size());
  Schedule const schedule = make_schedule(Collective::all_reduce, Algorithm::ring, partition, communicator.rank());
  for (Index const longest : {1, 7, 126, 127, 1009}) {
    auto data = contributions<float>(communicator.rank(), partition.elements());
    comm_counters() = {};
    all_reduce(communicator, partition, Operation::sum, data, {.longest_message = longest});
    INFO("at most " << longest << " elements per message");
    CHECK(mismatch(data, Operation::sum, communicator.size()) == "");
    CHECK(counted() == predict_traffic(schedule, sizeof(float), longest));
    if (longest == 1) CHECK(counted().messages * sizeof(float) == counted().bytes);
  }
}

TEST_CASE("a collective that is only tested for progress ends with the same result", "[mpi][ring]") {
  ExecutionSpace const exec;
  Communicator communicator = Communicator::world();
  Partition const partition = Partition::even(1009, communicator.size());
  Schedule const schedule = make_schedule(Collective::all_reduce, Algorithm::ring, partition, communicator.rank());
  std::vector<float> data(1009);
  std::vector<float> scratch(static_cast<std::size_t>(schedule.scratch_elements));
  Execution execution(exec, communicator, schedule, Operation::sum, view(data), view(scratch));
  for (int run = 0; run < 3; ++run) { // and may be started again
    std::ranges::copy(contributions<float>(communicator.rank(), partition.elements()), data.begin());
    execution.start();
    while (!execution.progress()) std::this_thread::yield();
    exec.fence("trainstone::test: the host reads the result");
    CHECK(mismatch(data, Operation::sum, communicator.size()) == "");
  }
}

TEST_CASE("several collectives in flight do not mix", "[mpi][ring]") {
  ExecutionSpace const exec;
  Communicator communicator = Communicator::world();
  Partition const partition = Partition::even(37, communicator.size());
  Schedule const schedule = make_schedule(Collective::all_reduce, Algorithm::ring, partition, communicator.rank());
  std::vector<std::vector<double>> data(5), scratch(5);
  std::vector<Execution> executions;
  for (std::size_t k = 0; k < data.size(); ++k) {
    data[k] = contributions<double>(communicator.rank(), 37);
    for (double& value : data[k]) value *= static_cast<double>(k + 1);
    scratch[k].resize(static_cast<std::size_t>(schedule.scratch_elements));
    executions.emplace_back(exec, communicator, schedule, Operation::sum, view(data[k]), view(scratch[k]));
  }
  for (Execution& execution : executions) execution.start();
  for (bool all_ended = false; !all_ended; std::this_thread::yield()) { // the last one first
    all_ended = true;
    for (auto execution = executions.rbegin(); execution != executions.rend(); ++execution) {
      all_ended &= execution->progress();
    }
  }
  exec.fence("trainstone::test: the host reads the result");
  for (std::size_t k = 0; k < data.size(); ++k) {
    for (double& value : data[k]) value /= static_cast<double>(k + 1);
    INFO("collective " << k);
    CHECK(mismatch(data[k], Operation::sum, communicator.size()) == "");
  }
}

TEST_CASE("delays before the kernels change nothing", "[mpi][ring]") {
  Communicator communicator = Communicator::world();
  Partition const partition = Partition::even(101, communicator.size());
  int calls = 0;
  delay_point() = [&](char const*) {
    std::this_thread::sleep_for(std::chrono::microseconds((communicator.rank() * 7 + ++calls) % 5 * 400));
  };
  for (int run = 0; run < 3; ++run) {
    auto data = contributions<float>(communicator.rank(), partition.elements());
    all_reduce(communicator, partition, Operation::sum, data);
    CHECK(mismatch(data, Operation::sum, communicator.size()) == "");
  }
  delay_point() = nullptr;
}

TEST_CASE("integer sums wrap around and a NaN survives max and min", "[mpi][ring]") {
  Communicator communicator = Communicator::world();
  Partition const partition = Partition::even(3, communicator.size());
  std::vector<std::int64_t> hashes(3, std::numeric_limits<std::int64_t>::max());
  all_reduce(communicator, partition, Operation::sum, hashes);
  auto const expected =
      static_cast<std::int64_t>(static_cast<std::uint64_t>(communicator.size()) * 0x7fffffffffffffffu);
  CHECK(hashes == std::vector<std::int64_t>(3, expected));
  for (Operation const operation : {Operation::max, Operation::min}) {
    for (Rank poisoned = 0; poisoned < communicator.size(); ++poisoned) {
      std::vector<double> values(3, communicator.rank());
      if (communicator.rank() == poisoned) values[1] = std::nan("");
      all_reduce(communicator, partition, operation, values);
      CHECK(std::isnan(values[1]));
      CHECK_FALSE(std::isnan(values[0]));
    }
  }
}

TEST_CASE("a schedule of another rank, wrong extents and wrong limits are refused", "[mpi][ring]") {
  ExecutionSpace const exec;
  Communicator communicator = Communicator::world();
  Rank const ranks = communicator.size();
  auto const attempt = [&](Partition const& partition, Rank rank, std::size_t elements, std::size_t scratch_elements,
                           Index longest) {
    std::vector<float> data(elements), scratch(scratch_elements);
    Schedule const schedule = make_schedule(Collective::all_reduce, Algorithm::ring, partition, rank);
    Execution const execution(exec, communicator, schedule, Operation::sum, view(data), view(scratch),
                              {.longest_message = longest});
  };
  Partition const partition = Partition::even(100, ranks);
  CHECK_NOTHROW(attempt(partition, communicator.rank(), 100, 100, 1));
  CHECK_THROWS_AS(attempt(partition, communicator.rank(), 99, 100, 1), Error);
  CHECK_THROWS_AS(attempt(partition, communicator.rank(), 100, 100, 0), Error);
  CHECK_THROWS_AS(attempt(partition, communicator.rank(), 100, 100, longest_mpi_message + 1), Error);
  CHECK_THROWS_AS(attempt(Partition::even(100, ranks + 1), communicator.rank(), 100, 100, 1), Error);
  if (ranks > 1) {
    CHECK_THROWS_AS(attempt(partition, communicator.rank(), 100, 0, 1), Error);
    CHECK_THROWS_AS(attempt(partition, (communicator.rank() + 1) % ranks, 100, 100, 1), Error);
  }
}
