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
  Recording const recording(100);
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
  Recording const recording(100);
  before.end();
  CHECK(recording.events().empty());
  Span(Lane::compute, count).end();
  CHECK(names == 1);
}

TEST_CASE("a span may move, ends once, and does not outlive its recording", "[timeline]") {
  Span late;
  {
    Recording const recording(100);
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
  Recording const next(100);
  late.end();
  CHECK(next.events().empty());
}

TEST_CASE("there is one recording at a time, and other threads are in it", "[timeline]") {
  Recording const recording(100);
  CHECK_THROWS_AS(Recording(100), Error);
  std::thread([] { Span const span(Lane::wait, named("of a thread")); }).join();
  CHECK(recording.events().size() == 1);
}

TEST_CASE("a recording keeps as many events as it was told, counts the others, and takes no more memory",
          "[timeline]") {
  Recording recording(3);
  for (char const* name : {"a", "b", "a", "c", "d"}) Span(Lane::wait, named(name)).end();
  CHECK(recording.size() == 3);
  CHECK(recording.left_out() == 2);
  std::vector<TimelineEvent> const events = recording.events();
  CHECK((events[0].name == "a" && events[1].name == "b" && events[2].name == "a"));
  CHECK(Recording::bytes_of(1000) == 1000 * (2 * 8 + 4 + 4)); // two times, a name's number, a lane
}

TEST_CASE("what ends after the recording is neither kept nor counted, and another one may begin", "[timeline]") {
  Recording recording(1);
  Span(Lane::wait, named("a")).end();
  Span late(Lane::wait, named("late"));
  recording.end();
  Recording const next(1);
  late.end();
  CHECK((recording.size() == 1 && recording.left_out() == 0 && next.size() == 0));
  recording.end(); // of another one that has begun: nothing
  Span(Lane::wait, named("b")).end();
  CHECK(next.size() == 1);
}
