#include "core/timeline.hpp"

#include "core/error.hpp"
#include "core/timed_region.hpp"

#include <catch2/catch_test_macros.hpp>

#include <thread>

using namespace trainstone;

namespace {

auto named(char const* name) {
  return [name] { return std::string(name); };
}

} // namespace

TEST_CASE("spans are recorded when they end, with the outer ones around the inner ones", "[timeline]") {
  Recording const recording;
  {
    TimedRegion const outer(named("trainstone::test::outer"));
    Span const inner(Lane::wait, named("inner"));
  }
  std::vector<TimelineEvent> const events = recording.events();
  REQUIRE(events.size() == 2);
  CHECK(events[0].name == "inner");
  CHECK(events[0].lane == Lane::wait);
  CHECK(events[1].name == "trainstone::test::outer");
  CHECK(events[1].lane == Lane::compute);
  CHECK(events[1].begin >= 0);
  CHECK(events[1].begin <= events[0].begin);
  CHECK(events[0].begin <= events[0].end);
  CHECK(events[0].end <= events[1].end);
}

TEST_CASE("without a recording no name is made and nothing is kept", "[timeline]") {
  int names = 0;
  auto const count = [&] {
    ++names;
    return std::string("trainstone::test");
  };
  Span before(Lane::compute, count);
  TimedRegion const region(count);
  CHECK(names == 0);
  Recording const recording;
  before.end();
  CHECK(recording.events().empty());
  Span(Lane::compute, count).end();
  CHECK(names == 1);
}

TEST_CASE("a span may move, ends once, and does not outlive its recording", "[timeline]") {
  Span late;
  {
    Recording const recording;
    Span first(Lane::collective, named("first"));
    Span second = std::move(first);
    second.end();
    second.end();
    late = Span(Lane::collective, named("replaced"));
    late = Span(Lane::collective, named("late"));
    std::vector<TimelineEvent> const events = recording.events();
    REQUIRE(events.size() == 2);
    CHECK(events[0].name == "first");
    CHECK(events[1].name == "replaced");
  }
  Recording const next;
  late.end();
  CHECK(next.events().empty());
}

TEST_CASE("there is one recording at a time, and other threads are in it", "[timeline]") {
  Recording const recording;
  CHECK_THROWS_AS(Recording(), Error);
  std::thread([] { Span const span(Lane::wait, named("of a thread")); }).join();
  CHECK(recording.events().size() == 1);
}
