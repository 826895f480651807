#include "core/hook.hpp"

#include <catch2/catch_test_macros.hpp>

#include <memory>
#include <string>

using namespace trainstone;

namespace {

using Place = Hook<std::string(int)>;

/// Answers with its name and what it was called with.
std::unique_ptr<Place::Scoped> put(Place& place, std::string const& name) {
  return std::make_unique<Place::Scoped>(place, [name](int number) { return name + std::to_string(number); });
}

} // namespace

TEST_CASE("a place calls whoever came last and is still there, in whatever order the others leave", "[hook]") {
  Place place;
  CHECK_FALSE(bool(place));
  auto first = put(place, "first ");
  CHECK(place(1) == "first 1");
  auto second = put(place, "second ");
  auto third = put(place, "third ");
  CHECK(place(2) == "third 2");
  second.reset();
  CHECK(place(3) == "third 3");
  third.reset();
  CHECK(place(4) == "first 4");
  auto fourth = put(place, "fourth ");
  first.reset();
  CHECK(place(5) == "fourth 5");
  fourth.reset();
  CHECK_FALSE(bool(place));
}

TEST_CASE("whoever puts nothing into a place keeps the others from being called", "[hook]") {
  Place place;
  auto const first = put(place, "first ");
  {
    Place::Scoped const nothing(place, {});
    CHECK_FALSE(bool(place));
  }
  CHECK(place(1) == "first 1");
}
