#include "train/pace.hpp"

#include "core/launch.hpp"
#include "model/parameter_table.hpp"

#include <catch2/catch_test_macros.hpp>

#include <cmath>
#include <set>

using namespace trainstone;

namespace {

FaultConfig paced(double forward, double backward) {
  FaultConfig faults;
  faults.pace_forward = forward;
  faults.pace_backward = backward;
  return faults;
}

Instruction of(Act act, Index part, Index piece = Instruction::none) {
  return {.act = act, .subject = part, .micro_batch = 0, .piece = piece};
}

} // namespace

TEST_CASE("half of a block's time belongs to each of its parts, and none to others", "[pace]") {
  ParameterTable const table({2, 2, 8, 8, 16}, 1);
  PartTable const parts(table); // embed, attention 0, mlp 0, attention 1, mlp 1, head
  Pace const pace(paced(0.5, 2), 0);
  for (Index part : {1, 2, 3, 4}) {
    CHECK(pace.least_seconds(of(Act::forward, part), parts) == 0.25);
    CHECK(pace.least_seconds(of(Act::backward, part), parts) == 1);
    CHECK(pace.least_seconds(of(Act::recompute, part), parts) == 0);
  }
  for (Index part : {0, 5}) {
    CHECK(pace.least_seconds(of(Act::forward, part), parts) == 0);
    CHECK(pace.least_seconds(of(Act::backward, part), parts) == 0);
  }
  for (Act act : {Act::load, Act::loss, Act::norm, Act::update}) CHECK(pace.least_seconds({.act = act}, parts) == 0);
}

TEST_CASE("the pieces of a backward have its time together", "[pace]") {
  ParameterTable const table({2, 2, 8, 8, 16}, 1);
  PartTable const parts(table);
  Pace const pace(paced(0, 2), 0);
  Index const pieces = std::ssize(parts.backward(1));
  REQUIRE(pieces > 1);
  CHECK(pace.least_seconds(of(Act::backward, 1, 0), parts) * static_cast<double>(pieces) == 1);
}

TEST_CASE("a straggler's times are longer, others' are not", "[pace]") {
  ParameterTable const table({2, 2, 8, 8, 16}, 1);
  PartTable const parts(table);
  FaultConfig faults = paced(0.5, 2);
  faults.straggler_rank = 1;
  faults.straggler_factor = 3;
  CHECK(Pace(faults, 0).least_seconds(of(Act::forward, 1), parts) == 0.25);
  CHECK(Pace(faults, 1).least_seconds(of(Act::forward, 1), parts) == 0.75);
  CHECK(Pace(faults, 1).least_seconds(of(Act::backward, 2), parts) == 3);
}

TEST_CASE("random stragglers have other times in every step, of mean 1 and of the same deviation", "[pace]") {
  ParameterTable const table({2, 2, 8, 8, 16}, 1);
  PartTable const parts(table);
  FaultConfig faults = paced(0.5, 2);
  faults.straggler_sigma = 0.5;
  double sum = 0, logarithms = 0, squares = 0;
  constexpr int ranks = 8, steps = 2000, count = ranks * steps;
  for (int rank = 0; rank < ranks; ++rank)
    for (int step = 1; step <= steps; ++step) {
      double const factor = straggler_factor(faults, rank, step), logarithm = std::log(factor);
      sum += factor;
      logarithms += logarithm;
      squares += logarithm * logarithm;
    }
  double const mean = logarithms / count; // the standard error of the mean is 0.5/sqrt(16000) = 0.004
  CHECK(std::abs(sum / count - 1) < 0.02);
  CHECK(std::abs(mean + 0.125) < 0.02);
  CHECK(std::abs(std::sqrt(squares / count - mean * mean) - 0.5) < 0.02);

  Pace pace(faults, 1);
  CHECK(pace.least_seconds(of(Act::forward, 1), parts) == 0.25); // of no step
  for (std::int64_t const step : {1, 2}) {
    pace.begin(step);
    CHECK(pace.least_seconds(of(Act::forward, 1), parts) == 0.25 * straggler_factor(faults, 1, step));
  }
  std::set<double> apart;
  for (int rank = 0; rank < 3; ++rank)
    for (int step = 0; step < 3; ++step) apart.insert(straggler_factor(faults, rank, step));
  CHECK(apart.size() == 3 * 2 + 1); // step 0 has the same factor on all ranks
  faults.straggler_seed = 2;
  CHECK(apart.count(straggler_factor(faults, 0, 1)) == 0);
  faults.straggler_rank = 0;
  faults.straggler_factor = 3;
  CHECK(straggler_factor(faults, 0, 0) == 3);
}

TEST_CASE("whoever sleeps goes on with what happens between launches", "[pace]") {
  int calls = 0;
  BetweenLaunches::Scoped const counted(between_launches(), [&] { ++calls; });
  SteadyTime const begin = std::chrono::steady_clock::now();
  sleep_until_passed(begin, 0.01);
  CHECK(seconds_since(begin) >= 0.01);
  CHECK(calls > 1);
  calls = 0;
  sleep_until_passed(begin, 0.005); // has passed
  sleep_until_passed(begin, 0);
  CHECK(calls == 0);
}

TEST_CASE("predicted parts of blocks take at least their pace", "[train][pace]") {
  PartTimes times;
  for (PartKind const kind : part_kinds) times.parts[kind] = {.forward = 1, .backward = 5, .backward_adding = 6};
  FaultConfig faults;
  faults.pace_forward = 8;
  faults.pace_backward = 11;
  PartTimes const found = paced(times, faults);
  for (PartKind const kind : {PartKind::attention, PartKind::mlp}) {
    CHECK(found.of(kind).forward == 4);
    CHECK(found.of(kind).backward == 5.5);
    CHECK(found.of(kind).backward_adding == 6);
  }
  for (PartKind const kind : {PartKind::embed, PartKind::head}) CHECK(found.of(kind).forward == 1);
}
