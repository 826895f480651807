// The lecture on pipelines against what the slides show and against closed forms that are written down here once more.

#include "lectures/taught_pipeline.hpp"

#include "core/error.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include <algorithm>
#include <array>
#include <utility>

using namespace trainstone;
using Catch::Matchers::WithinRel;

namespace {

constexpr Index w = cell_waits;

/// Waiting time / all time of p stages, m micro-batches and v chunks.
double share_of(std::string const& schedule, double p, double m, double v) {
  if (schedule == "naive") return (p - 1) / p;
  return (p - 1) / (v * m + p - 1);
}

double ratio_of(std::string const& schedule, double p, double m, double v) {
  if (schedule == "naive") return p - 1;
  return (p - 1) / (v * m);
}

Index in_flight_of(std::string const& schedule, Index p, Index m, Index v, Index stage) {
  if (schedule == "naive") return 1;
  if (schedule == "gpipe") return m;
  if (schedule == "1f1b") return std::min(m, p - stage);
  return std::min(m * v, 2 * (p - 1 - stage) + (v - 1) * p + 1);
}

Index exposed_of(std::string const& schedule, Index p, Index m, Index v) {
  if (schedule == "naive") return 2 * (p - 1) * m;
  if (schedule == "1f1b") return 2 * (p - 1) + 2 * ((m - 1) * (p - 1) / p);
  return 2 * (p * v - 1);
}

} // namespace

TEST_CASE("of three stages 6 of 9, 6 of 12 and 6 of 15 cells wait in each direction, as on the slides", "[lecture]") {
  TaughtPipeline const lecture = compare_taught_pipeline(3, {});
  REQUIRE(lecture.grids.size() == 3);
  constexpr std::array<Index, 3> cells{9, 12, 15};
  for (std::size_t i = 0; i < cells.size(); ++i) {
    PipelineGrid const& grid = lecture.grids[i];
    INFO(grid.micro_batches);
    CHECK(grid.micro_batches == static_cast<Index>(i) + 1);
    CHECK(grid.taught_waits == 6);
    CHECK(grid.taught_cells == cells[i]);
    CHECK(grid.exact_waits == 6);
    CHECK(grid.exact_cells == cells[i]);
    for (PipelineCells const& direction : {grid.forward, grid.backward}) {
      CHECK(waiting_cells(direction) == 6);
      CHECK(std::ssize(direction) * std::ssize(direction.front()) == cells[i]);
    }
  }
}

TEST_CASE("the grid of two micro-batches is the one of the slides", "[lecture]") {
  PipelineGrid const grid = compare_taught_pipeline(3, 2).grids.at(0);
  CHECK(grid.forward == PipelineCells{{0, 1, w, w}, {w, 0, 1, w}, {w, w, 0, 1}});
  CHECK(grid.backward == PipelineCells{{w, w, 0, 1}, {w, 0, 1, w}, {0, 1, w, w}});
}

TEST_CASE("p (p-1) of p (m+p-1) cells wait for other shapes, of which nothing is taught", "[lecture]") {
  for (Index const p : {2, 4, 5})
    for (Index const m : {1, 2, 7}) {
      INFO(p << " stages, " << m << " micro-batches");
      PipelineGrid const grid = compare_taught_pipeline(p, m).grids.at(0);
      CHECK_FALSE(grid.taught_waits.has_value());
      CHECK(grid.exact_waits == p * (p - 1));
      CHECK(grid.exact_cells == p * (m + p - 1));
      CHECK(waiting_cells(grid.forward) == p * (p - 1));
      CHECK(waiting_cells(grid.backward) == p * (p - 1));
      CHECK(std::ssize(grid.forward) * std::ssize(grid.forward.front()) == p * (m + p - 1));
    }
}

TEST_CASE("every schedule waits, keeps and sends as its closed forms and its simulation say", "[lecture]") {
  for (auto const& [p, m] :
       {std::pair<Index, Index>{2, 1}, {2, 6}, {3, 1}, {3, 3}, {4, 8}, {4, 7}, {5, 2}, {7, 21}, {8, 32}}) {
    TaughtPipeline const lecture = compare_taught_pipeline(p, m);
    CHECK(lecture.rows.size() == (m % p == 0 ? 4U : 3U)); // interleaved needs whole groups
    for (PipelineRow const& row : lecture.rows) {
      INFO(row.schedule << ", " << p << " stages, " << m << " micro-batches");
      Index const v = row.schedule == "interleaved" ? 2 : 1;
      auto const stages = static_cast<double>(p), batches = static_cast<double>(m), chunks = static_cast<double>(v);
      CHECK(row.chunks == v);
      CHECK_THAT(row.share, WithinRel(share_of(row.schedule, stages, batches, chunks), 1e-14));
      CHECK_THAT(row.simulated_share, WithinRel(row.share, 1e-14));
      CHECK_THAT(row.ratio, WithinRel(ratio_of(row.schedule, stages, batches, chunks), 1e-14));
      CHECK_THAT(row.simulated_ratio, WithinRel(row.ratio, 1e-14));
      CHECK(row.messages == 2 * m * (p * v - 1));
      CHECK(row.counted_messages == row.messages);
      CHECK(row.exposed == exposed_of(row.schedule, p, m, v));
      CHECK(row.simulated_exposed == row.exposed);
      REQUIRE(std::ssize(row.in_flight) == p);
      for (Index i = 0; i < p; ++i)
        CHECK(row.in_flight[static_cast<std::size_t>(i)] == in_flight_of(row.schedule, p, m, v, i));
      CHECK(row.simulated_in_flight == row.in_flight);
    }
  }
}

TEST_CASE("four stages and eight micro-batches idle 75, 27.3, 27.3 and 15.8 percent", "[lecture]") {
  std::vector<PipelineRow> const rows = compare_taught_pipeline(4, 8).rows;
  REQUIRE(rows.size() == 4);
  CHECK_THAT(rows[0].simulated_share, WithinRel(0.75, 1e-14));
  CHECK_THAT(rows[1].simulated_share, WithinRel(3.0 / 11, 1e-14));
  CHECK_THAT(rows[2].simulated_share, WithinRel(3.0 / 11, 1e-14));
  CHECK_THAT(rows[3].simulated_share, WithinRel(3.0 / 19, 1e-14));
}

TEST_CASE("a message of GPT-3 has s h numbers of two bytes", "[lecture]") {
  CHECK(compare_taught_pipeline(3, 1).message_bytes == 2048.0 * 12288 * 2);
}

TEST_CASE("stages and micro-batches of a lecture are limited", "[lecture]") {
  CHECK_THROWS_AS(compare_taught_pipeline(1, {}), InputError);
  CHECK_THROWS_AS(compare_taught_pipeline(65, {}), InputError);
  CHECK_THROWS_AS(compare_taught_pipeline(3, 0), InputError);
  CHECK_THROWS_AS(compare_taught_pipeline(3, 1025), InputError);
}
