#include "train/plan/config.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace trainstone;

namespace {

std::string problem_of(BatchConfig const& batch, std::int64_t ranks) {
  std::optional<ConfigProblem> const problem = find_problem(batch, ranks);
  return problem ? problem->message : "none";
}

} // namespace

TEST_CASE("any two of the batch's numbers give the third", "[config]") {
  for (std::int64_t ranks : {1, 2, 3, 7}) {
    BatchConfig const whole{5, 3, 15 * ranks};
    CHECK(resolve_batch({5, 3, 0}, ranks) == whole);
    CHECK(resolve_batch({5, 0, 15 * ranks}, ranks) == whole);
    CHECK(resolve_batch({0, 3, 15 * ranks}, ranks) == whole);
    CHECK(resolve_batch(whole, ranks) == whole);
  }
}

TEST_CASE("one of the batch's numbers is not enough", "[config]") {
  for (BatchConfig const& batch :
       {BatchConfig{0, 0, 0}, BatchConfig{4, 0, 0}, BatchConfig{0, 4, 0}, BatchConfig{0, 0, 4}}) {
    CHECK(problem_of(batch, 1) == "give two of batch.micro, batch.accumulation and batch.global: "
                                  "global = micro x accumulation x data ranks");
    CHECK_THROWS_AS(resolve_batch(batch, 1), InputError);
  }
}

TEST_CASE("a batch that does not divide comes with the nearest that do", "[config]") {
  CHECK(problem_of({4, 0, 30}, 3) ==
        "batch.global = 30 is no multiple of 12 (batch.micro x 3 data ranks); nearest legal values: 24 or 36");
  CHECK(problem_of({0, 2, 7}, 2) ==
        "batch.global = 7 is no multiple of 4 (batch.accumulation x 2 data ranks); nearest legal values: 4 or 8");
  CHECK(problem_of({4, 0, 5}, 2) ==
        "batch.global = 5 is no multiple of 8 (batch.micro x 2 data ranks); nearest legal values: 8");
}

TEST_CASE("three numbers of a batch must agree", "[config]") {
  CHECK(problem_of({2, 3, 12}, 2) == "none");
  CHECK(problem_of({2, 3, 12}, 1) ==
        "batch.global = 12 contradicts batch.micro = 2 x batch.accumulation = 3 x 1 data ranks; the "
        "legal value is 6, or leave one of the three out");
}
