#include "train/injected_delay.hpp"

#include "core/clock.hpp"
#include "core/launch.hpp"

#include <catch2/catch_test_macros.hpp>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

using namespace trainstone;

namespace {

FaultConfig delay(std::string const& where, std::int64_t rank = -1, std::int64_t every = 1) {
  FaultConfig faults;
  faults.delay_where = where;
  faults.delay_time = 0.04;
  faults.delay_rank = rank;
  faults.delay_every = every;
  return faults;
}

/// How many of the calls waited at least as long as they must.
int waits(std::vector<char const*> const& labels) {
  int count = 0;
  for (char const* label : labels) {
    auto const start = std::chrono::steady_clock::now();
    if (delay_point()) delay_point()(label);
    count += std::chrono::steady_clock::now() - start >= std::chrono::milliseconds(40);
  }
  return count;
}

/// Seconds that a kernel of 20 ms counts for its phase.
double counted_seconds(char const* label) {
  ExecutionSpace const exec;
  double const before = counters().seconds[Phase::gemm];
  launch_external({label, Phase::gemm}, exec, [] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); });
  return counters().seconds[Phase::gemm] - before;
}

} // namespace

TEST_CASE("a slowed kernel takes a share of its own time longer, on the clock of its phase", "[faults]") {
  FaultConfig faults;
  faults.slow_kernel = "gemm";
  faults.slow_factor = 3;
  {
    InjectedDelay const injected(faults, 0);
    KernelTable table;
    {
      ThreadKernelTable const entered(&table);
      CHECK(counted_seconds("trainstone::gemm[oneDNN]") >= 0.06);
    }
    CHECK(table.at("trainstone::gemm[oneDNN]").seconds >= 0.06);
    CHECK(table.at("trainstone::gemm[oneDNN]").launches == 1);
    SteadyTime const start = std::chrono::steady_clock::now();
    kernel_end()("trainstone::gelu::backward", 3600);
    CHECK(seconds_since(start) < 3600);
  }
  CHECK_FALSE(bool(kernel_end()));
  InjectedDelay const none(FaultConfig{}, 0);
  CHECK_FALSE(bool(kernel_end()));
}

TEST_CASE("a kernel is known by the whole of its label's first part", "[faults]") {
  CHECK(is_kernel("trainstone::gemm", "gemm"));
  CHECK(is_kernel("trainstone::gemm[oneDNN]", "gemm"));
  CHECK(is_kernel("trainstone::bias::forward", "bias"));
  CHECK_FALSE(is_kernel("trainstone::bias_gelu::forward", "bias"));
  CHECK_FALSE(is_kernel("trainstone::comm::gemm", "gemm"));
  CHECK_FALSE(is_kernel("gemm", "gemm"));
}

TEST_CASE("a delay waits at its place alone, and until it is gone", "[faults]") {
  std::vector<char const*> const labels{"trainstone::gemm",          "trainstone::adamw::update",
                                        "trainstone::comm::send",    "trainstone::comm::sendings",
                                        "trainstone::comm::receive", "trainstone::comm::send"};
  {
    InjectedDelay const injected(delay("send"), 0);
    CHECK(waits(labels) == 2);
  }
  CHECK_FALSE(bool(delay_point()));
  {
    InjectedDelay const injected(delay("kernel"), 0);
    CHECK(waits(labels) == 2);
  }
  InjectedDelay const none(FaultConfig{}, 0);
  CHECK_FALSE(bool(delay_point()));
}

TEST_CASE("a delay waits on its rank, every so many times", "[faults]") {
  std::vector<char const*> const seven(7, "trainstone::comm::send");
  {
    InjectedDelay const injected(delay("send", 2, 3), 2);
    CHECK(waits(seven) == 2); // the third and the sixth
    CHECK(waits({"trainstone::comm::send"}) == 0);
    CHECK(waits({"trainstone::comm::send"}) == 1);
  }
  InjectedDelay const other(delay("send", 2, 3), 1);
  CHECK_FALSE(bool(delay_point()));
}
