// No order is faster than the bound says, and the search finds the fastest one. All orders of small pipelines are tried
// here, with times that are computed from the definition.

#include "core/error.hpp"
#include "parallel/pipeline/pipeline_bound.hpp"
#include "parallel/pipeline/pipeline_proof.hpp"
#include "parallel/pipeline/pipeline_search.hpp"
#include "support/pipelines.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <functional>
#include <random>

using namespace trainstone;

namespace {

/// All orders of a stage with ascending micro-batches: true is a forward. At most `slots` are in flight.
std::vector<std::vector<bool>> all_orders(Index micro_batches, Index slots) {
  std::vector<std::vector<bool>> all;
  std::vector<bool> order;
  std::function<void(Index, Index)> const extend = [&](Index forwards, Index backwards) {
    if (backwards == micro_batches) all.push_back(order);
    for (bool const forward : {true, false}) {
      if (forward ? forwards == micro_batches || forwards - backwards == slots : backwards == forwards) continue;
      order.push_back(forward);
      extend(forwards + (forward ? 1 : 0), backwards + (forward ? 0 : 1));
      order.pop_back();
    }
  };
  extend(0, 0);
  return all;
}

/// The time of one order per stage, or none if stages wait for each other.
std::optional<Ticks> time_of(std::vector<std::vector<bool> const*> const& orders, PipelinePrices const& prices) {
  std::size_t const stages = orders.size();
  std::vector<std::vector<Ticks>> forward(stages), backward(stages);
  std::vector<std::size_t> next(stages, 0);
  std::vector<Ticks> clock(stages, 0);
  bool moved = true;
  while (moved) {
    moved = false;
    for (std::size_t i = 0; i < stages; ++i)
      for (; next[i] < orders[i]->size(); ++next[i], moved = true) {
        bool const is_forward = (*orders[i])[next[i]];
        bool const has_neighbour = is_forward ? i > 0 : i + 1 < stages;
        auto& mine = is_forward ? forward[i] : backward[i];
        auto const* const theirs = !has_neighbour ? nullptr : is_forward ? &forward[i - 1] : &backward[i + 1];
        if (theirs && theirs->size() <= mine.size()) break;
        clock[i] = std::max(clock[i], theirs ? (*theirs)[mine.size()] : 0) +
                   (is_forward ? prices.chunks[i][0].forward + (i + 1 == stages ? prices.head : 0)
                               : prices.chunks[i][0].backward);
        mine.push_back(clock[i]);
      }
  }
  for (std::size_t i = 0; i < stages; ++i)
    if (next[i] < orders[i]->size()) return std::nullopt;
  return std::ranges::max(clock);
}

Index peak_of(std::vector<bool> const& order) {
  Index kept = 0, peak = 0;
  for (bool const is_forward : order) peak = std::max(peak, kept += is_forward ? 1 : -1);
  return peak;
}

struct Exhausted {
  Ticks time = 1 << 30;
  Index orders = 0;                  ///< that do not wait for ever
  std::vector<Index> in_flight = {}; ///< by stage: the least peak of the fastest orders
};

Exhausted exhaust(PipelineShape const& shape, PipelinePrices const& prices, Index slots) {
  std::vector<std::vector<bool>> const choices = all_orders(shape.micro_batches, slots);
  std::vector<std::vector<bool> const*> orders(static_cast<std::size_t>(shape.stages));
  Exhausted found;
  std::function<void(std::size_t)> const choose = [&](std::size_t stage) {
    if (stage == orders.size()) {
      std::optional<Ticks> const time = time_of(orders, prices);
      if (!time) return;
      ++found.orders;
      if (*time > found.time) return;
      if (*time < found.time || found.in_flight.empty()) found.in_flight.assign(orders.size(), shape.micro_batches);
      found.time = *time;
      for (std::size_t i = 0; i < orders.size(); ++i)
        found.in_flight[i] = std::min(found.in_flight[i], peak_of(*orders[i]));
      return;
    }
    for (auto const& choice : choices) {
      orders[stage] = &choice;
      choose(stage + 1);
    }
  };
  choose(0);
  return found;
}

PipelinePrices random_prices(PipelineShape const& shape, std::mt19937& random) {
  PipelinePrices prices = equal_prices(shape, {});
  std::uniform_int_distribution<Ticks> time(1, 6);
  for (auto& chunks : prices.chunks) chunks[0] = {time(random), time(random)};
  prices.head = time(random) - 1;
  return prices;
}

} // namespace

TEST_CASE("no order of equal stages is faster than 1F1B") {
  for (auto const& [stages, micro_batches] : {std::pair(2, 2), std::pair(2, 3), std::pair(2, 4), std::pair(2, 5),
                                              std::pair(3, 3), std::pair(3, 4), std::pair(4, 4)})
    for (Ticks const ratio : {1, 2}) {
      PipelineShape const shape{stages, micro_batches, 1};
      CAPTURE(stages, micro_batches, ratio);
      PipelinePrices const prices = equal_prices(shape, {2, 2 * ratio});
      Exhausted const found = exhaust(shape, prices, micro_batches);
      CHECK(found.time == play_pipeline(program_of("1f1b", shape), prices).time);
      CHECK(found.time == pipeline_bound(shape, false, prices));
      CHECK(found.orders > 2);
      // 1F1B keeps the least on all stages at once
      for (Index i = 0; i < stages; ++i)
        CHECK(found.in_flight[static_cast<std::size_t>(i)] == std::min<Index>(micro_batches, stages - i));
    }
}

TEST_CASE("no order with fewer slots than 1F1B's on the first stage is as fast") {
  PipelineShape const shape{3, 4, 1};
  PipelinePrices const prices = equal_prices(shape, {1, 2});
  Ticks const best = pipeline_bound(shape, false, prices);
  CHECK(exhaust(shape, prices, 3).time == best);
  CHECK(exhaust(shape, prices, 2).time > best);
}

TEST_CASE("the search finds the fastest of all orders of unequal stages") {
  std::mt19937 random(7);
  Index searched = 0, reached = 0;
  for (Index round = 0; round < 60; ++round) {
    PipelineShape const shape{2 + round % 2, 3 + round / 2 % 2, 1};
    PipelinePrices const prices = random_prices(shape, random);
    for (Index slots = 1; slots <= shape.micro_batches; ++slots) {
      CAPTURE(round, slots);
      PipelineSearchResult const found = search_pipeline_order(shape, prices, {.slots = slots});
      PipelineProgram const program = make_pipeline_program(shape, found.orders);
      CHECK_FALSE(find_pipeline_defect(program));
      CHECK(std::ranges::all_of(program.stages, [&](StageProgram const& one) { return one.slots <= slots; }));
      CHECK(play_pipeline(program, prices).time == found.time);
      CHECK_FALSE(found.cut_off);
      CHECK(found.least == exhaust(shape, prices, slots).time);
      CHECK(found.time >= found.least);
      CHECK(found.least >= slots_bound(shape, prices, slots));
      ++searched;
      reached += found.is_best() ? 1 : 0;
    }
  }
  CHECK(10 * reached >= 9 * searched);
}

TEST_CASE("a search that is cut off says so and keeps the bound as certificate") {
  PipelineShape const shape{4, 12, 1};
  PipelinePrices prices = equal_prices(shape, {2, 4});
  prices.chunks[1][0] = {5, 3};
  prices.chunks[2][0] = {1, 7};
  PipelineSearchResult const found = search_pipeline_order(shape, prices, {.slots = 3, .most_steps = 5});
  CHECK(found.cut_off);
  CHECK(pipeline_bound(shape, false, prices) == 7 + 12 * 8 + 7);
  CHECK(slots_bound(shape, prices, 3) == 4 * 28);
  CHECK(found.least == 4 * 28);
  CHECK(found.time >= found.least);
  CHECK_FALSE(find_pipeline_defect(make_pipeline_program(shape, found.orders)));
  PipelineShape const chunked{2, 2, 2};
  CHECK_THROWS_AS(search_pipeline_order(chunked, equal_prices(chunked, {2, 2})), InputError);
}
