#include "train/injected_delay.hpp"

#include "core/launch.hpp"

#include <catch2/catch_test_macros.hpp>

#include <chrono>
#include <string>
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

} // namespace

TEST_CASE("a delay waits at its place alone, and until it is gone", "[faults]") {
  std::vector<char const*> const labels{"trainstone::gemm",          "trainstone::adamw::update",
                                        "trainstone::comm::send",    "trainstone::comm::sendings",
                                        "trainstone::comm::receive", "trainstone::comm::send"};
  {
    InjectedDelay const injected(delay("send"), 0);
    CHECK(waits(labels) == 2);
  }
  CHECK_FALSE(delay_point());
  {
    InjectedDelay const injected(delay("kernel"), 0);
    CHECK(waits(labels) == 2);
  }
  InjectedDelay const none(FaultConfig{}, 0);
  CHECK_FALSE(delay_point());
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
  CHECK_FALSE(delay_point());
}
