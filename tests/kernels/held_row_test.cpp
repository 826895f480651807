// Rows that devices hold in registers, played on the host: lane after lane, each with its own chunks.

#include "kernels/common/held_row.hpp"
#include "support/compare.hpp"
#include "support/storage.hpp"
#include "support/views.hpp"

#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>

#include <numeric>

using namespace trainstone;
using namespace trainstone::test;

namespace {

/// One of eight lanes. What it adds up is kept: a test adds the lanes.
struct PlayedLane {
  static constexpr int count = 8;
  int number;
  std::vector<double>* parts;

  int own() const { return number; }
  double sum(float part) const {
    parts->push_back(static_cast<double>(part));
    return 0;
  }
  template <class Body>
  void once(Body const& body) const {
    if (number == 0) body();
  }
};

/// body(row) as every lane.
template <class T, int chunks, class Body>
double play(Index columns, Body const& body) {
  std::vector<double> parts;
  for (int number = 0; number < PlayedLane::count; ++number) {
    PlayedLane const lane{number, &parts};
    body(Impl::HeldRow<T, chunks, PlayedLane>(lane, columns));
  }
  return std::accumulate(parts.begin(), parts.end(), 0.0);
}

} // namespace

TEMPLATE_TEST_CASE("lanes that hold a row read, add up and write each element once", "", float, bf16, fp16) {
  constexpr int size = Impl::Chunk<TestType>::size, chunks = 3;
  static_assert(sizeof(Impl::Chunk<TestType>) == 16);
  for (Index const columns : {1 * size, 7 * size, 8 * size, 9 * size, 23 * size, 24 * size}) {
    INFO(columns << " columns");
    auto const count = static_cast<std::size_t>(columns);
    std::vector<TestType> const x = stored<TestType>(random_values(columns, 1)),
                                y = stored<TestType>(random_values(columns, 2));
    struct alignas(16) Row {
      TestType elements[chunks * PlayedLane::count * size + size];
    };
    Row in{}, out{}, added{};
    std::copy(x.begin(), x.end(), in.elements);
    std::copy(y.begin(), y.end(), added.elements);
    TestType const beyond = from_float<TestType>(-7.0F);
    for (Row* row : {&in, &out, &added}) row->elements[count] = beyond;
    double const sum = play<TestType, chunks>(columns, [&](auto const& row) {
      auto const held = row.hold(in.elements);
      row.sum([&](auto c) { return held(c); });
      auto const doubled = row.write(out.elements, Write::overwrite, [&](auto c) { return 2 * held(c); });
      row.write(added.elements, Write::add, [&](auto c) { return doubled(c); });
    });
    double expected = 0;
    for (std::size_t c = 0; c < count; ++c) {
      float const value = to_float(x[c]);
      expected += static_cast<double>(value);
      float const twice = to_float(from_float<TestType>(2 * value));
      REQUIRE(to_float(out.elements[c]) == twice);
      REQUIRE(to_float(added.elements[c]) == to_float(from_float<TestType>(to_float(y[c]) + twice)));
    }
    // a lane adds up to 24 terms of at most 2 in fp32
    CHECK(std::abs(sum - expected) <= roundoff * 24 * 2 * static_cast<double>(count));
    for (Row const* row : {&in, &out, &added}) CHECK(to_float(row->elements[count]) == to_float(beyond));
  }
}

TEST_CASE("a row lies in chunks if its length and all beginnings are multiples of 16 bytes") {
  alignas(16) float memory[8] = {};
  CHECK(Impl::lie_in_chunks<float>(8, {memory, memory + 4, nullptr}));
  CHECK_FALSE(Impl::lie_in_chunks<float>(8, {memory, memory + 2}));
  CHECK_FALSE(Impl::lie_in_chunks<float>(6, {memory}));
  CHECK(Impl::lie_in_chunks<bf16>(8, {memory}));
  CHECK_FALSE(Impl::lie_in_chunks<bf16>(4, {memory}));
}
