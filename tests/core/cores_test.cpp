#include "core/cores.hpp"

#include <catch2/catch_test_macros.hpp>

#include <sched.h>

#include <algorithm>

using namespace trainstone;

namespace {

/// What the calling thread may run on, as it was, when this ends.
class SameCoresAtEnd {
public:
  SameCoresAtEnd() { sched_getaffinity(0, sizeof m_set, &m_set); }
  SameCoresAtEnd(SameCoresAtEnd const&) = delete;
  SameCoresAtEnd& operator=(SameCoresAtEnd const&) = delete;
  ~SameCoresAtEnd() { sched_setaffinity(0, sizeof m_set, &m_set); }

private:
  cpu_set_t m_set = {};
};

} // namespace

TEST_CASE("cores are those of all threads together, not of the calling one", "[cores]") {
  Kokkos::DefaultHostExecutionSpace const exec;
  std::vector<std::int64_t> const all = cores_of_threads(exec);
  REQUIRE_FALSE(all.empty());
  CHECK(std::ranges::is_sorted(all));
  SameCoresAtEnd const reset;
  cpu_set_t own = {}, one = {};
  REQUIRE(sched_getaffinity(0, sizeof own, &own) == 0);
  int first = 0;
  while (!CPU_ISSET(first, &own)) ++first;
  CPU_SET(first, &one);
  REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
  // the other threads stay where they were: bound to a core each, or to none
  CHECK(cores_of_threads(exec) == (exec.concurrency() == 1 ? std::vector<std::int64_t>{first} : all));
}
