// Which slots a stage uses, and what a trace says of them.

#include "train/slot_use.hpp"

#include "core/error.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace trainstone;

namespace {

/// Two chunks of a block each, without embed and head.
PartTable two_chunks() {
  ModelStage const stage{.embed = false, .blocks = {0, 2}, .head = false, .chunks = {1, 1}};
  return PartTable(ParameterTable({4, 1, 4, 4, 16}, 1, stage));
}

Instruction forward(Index part, Index micro_batch, Index slot) {
  return {.act = Act::forward, .subject = part, .micro_batch = micro_batch, .buffers = {.slot = slot}};
}

Instruction backward(Index part, Index slot, Index piece = Instruction::none) {
  return {.act = Act::backward, .subject = part, .micro_batch = 0, .piece = piece, .buffers = {.slot = slot}};
}

} // namespace

TEST_CASE("a slot is in use from a chunk's first forward to its last backward", "[slots]") {
  PartTable const parts = two_chunks();
  REQUIRE(parts.size() == 4); // attention and mlp of either chunk
  SlotUse slots(parts);
  Recording recording(100);
  slots.begin(forward(0, 5, 1));
  slots.begin(forward(1, 5, 1)); // of the same chunk
  CHECK(slots.count() == 1);
  slots.begin(forward(2, 5, 0));
  CHECK(slots.count() == 2);
  slots.end(backward(3, 0));
  CHECK(slots.count() == 2);
  slots.end(backward(2, 0));
  CHECK(slots.count() == 1);
  for (Index piece = 0; piece < std::ssize(parts.backward(0)); ++piece) {
    CHECK(slots.count() == 1);
    slots.end(backward(0, 1, piece));
  }
  CHECK(slots.count() == 0);
  std::vector<TimelineEvent> const events = recording.events();
  REQUIRE(events.size() == 2);
  CHECK(events[0].name == "slot 0: micro-batch 5, chunk 1");
  CHECK(events[1].name == "slot 1: micro-batch 5, chunk 0");
  CHECK(events[1].lane == Lane::slot);
  CHECK(events[1].begin <= events[0].begin);
}

TEST_CASE("a slot that is in use is not taken again, until a new step begins", "[slots]") {
  PartTable const parts = two_chunks();
  SlotUse slots(parts);
  slots.begin(forward(0, 0, 0));
  CHECK_THROWS_AS(slots.begin(forward(0, 1, 0)), Error);
  slots.clear();
  CHECK(slots.count() == 0);
  CHECK_NOTHROW(slots.begin(forward(0, 1, 0)));
}
