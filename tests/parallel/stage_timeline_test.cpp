// When the instructions of stages begin and end: the step's timeline and that of the pipeline, which another simulator
// plays, agree.

#include "parallel/pipeline/pipeline_timeline.hpp"
#include "parallel/program/step_prices.hpp"
#include "parallel/program/step_timeline.hpp"
#include "support/pipeline_steps.hpp"

#include "comm/simulation/machine_model.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

using namespace trainstone;
using namespace trainstone::test;

namespace {

constexpr Nanoseconds forward = 20, backward = 40; // of half a block
constexpr Nanoseconds head_forward = 30, loss = 10, head_backward = 50;
constexpr Nanoseconds of_norm = 7, of_update = 11;

std::vector<RankClass> classes_of(PipelineCase const& one) {
  Mesh const mesh = mesh_of(one.parallel, one.ranks());
  std::vector<Index> keys;
  for (Rank rank = 0; rank < mesh.ranks(); ++rank) keys.push_back(mesh.index(Axis::pipeline, rank));
  return rank_classes(mesh, keys);
}

/// Messages take time on the wire. All ranks meet at the end of a step, which takes no time.
InstructionPrice price_of(ShardPlan const& plan, Instruction const& one, Nanoseconds message) {
  bool const computes = one.act == Act::forward || one.act == Act::backward;
  PartKind const kind = computes ? plan.parts[one.subject].kind : PartKind::embed;
  switch (one.act) {
  case Act::forward: return {kind == PartKind::head ? head_forward : kind == PartKind::embed ? 0 : forward};
  case Act::backward: return {kind == PartKind::head ? head_backward : kind == PartKind::embed ? 0 : backward};
  case Act::loss: return {loss};
  case Act::norm: return {of_norm};
  case Act::update: return {of_update};
  case Act::agree: return {0, {CollectivePrice{}}};
  case Act::send:
  case Act::receive: {
    MessageKind const of = message_kind(one);
    Index const sender = plan.pipeline.sender(one.act == Act::send, of);
    StagePair const stages = channel_stages(plan.pipeline.shape, of, sender);
    Index const channel = 2 * static_cast<Index>(of) + (sender == stages.lower ? 0 : 1);
    PortUse const port = one.act == Act::send ? PortUse::out : PortUse::in;
    return {0, {{.communicator = {Axis::pipeline, stages, channel}, .wire = message, .port = port}}};
  }
  case Act::gather:
  case Act::publish: return {0, {{.communicator = {Axis::shard}}}};
  case Act::reduce:
  case Act::reduce_sums: {
    InstructionPrice price;
    for (PlannedCollective const& step : plan.reductions.collectives)
      if (plan.reductions.is_of_sums(step) == (one.act == Act::reduce_sums))
        price.collectives.push_back({.communicator = {step.axis}});
    return price;
  }
  default: return {};
  }
}

StepTimeline timeline_of(PipelineCase const& one, Nanoseconds message, Entries entries = Entries::no) {
  Advances const advances = one.parallel.overlap ? Advances::between_kernels : Advances::in_waits;
  std::vector<ShardPlan> const plans = plans_of(one);
  std::vector<RankClass> const classes = classes_of(one);
  std::vector<StepProgram> programs;
  for (RankClass const& ranks : classes)
    programs.push_back(make_step_program(plans[static_cast<std::size_t>(ranks.first)]));
  PriceOf const price = [&](std::size_t number, Instruction const& instruction) {
    return price_of(plans[static_cast<std::size_t>(classes[number].first)], instruction, message);
  };
  return play_step(programs, classes, price, entries, advances);
}

/// Of the chunks alone.
PipelineTimeline pipeline_of(PipelineCase const& one, Ticks message) {
  PipelinePrices prices{.chunks = {}, .head = head_forward + loss + head_backward, .message = message};
  for (ModelStage const& stage : model_stages(one.parallel, one.costs(), one.micro_batches)) {
    std::vector<ChunkPrice>& chunks = prices.chunks.emplace_back();
    for (Index const blocks : blocks_by_chunk(stage))
      chunks.push_back({.forward = 2 * blocks * forward, .backward = 2 * blocks * backward});
  }
  return play_pipeline(training_pipeline(one.parallel, one.micro_batches), prices);
}

std::vector<PipelineCase> cases_on(Index stages, Index data_ranks) {
  std::vector<PipelineCase> all;
  for (std::string const schedule : {"naive", "gpipe", "1f1b", "1f1b-eager", "interleaved"})
    for (Index const chunks : {1, 2})
      for (Index const micro_batches : {1, 3, 4, 8}) {
        PipelineCase one{{.pipeline = stages}, data_ranks, micro_batches, 2 * stages};
        one.parallel.pipeline_schedule = schedule;
        one.parallel.pipeline_chunks = chunks;
        if (one.is_legal()) all.push_back(one);
      }
  return all;
}

} // namespace

TEST_CASE("a step of stages takes as long as the pipeline, norm and update", "[parallel][timeline][pipeline]") {
  Index const stages = GENERATE(2, 3, 4), data_ranks = GENERATE(1, 2);
  Nanoseconds const message = GENERATE(0, 3);
  bool const overlap = GENERATE(true, false);
  for (PipelineCase one : cases_on(stages, data_ranks)) {
    if (one.parallel.pipeline_chunks > 1 && message > 0) continue;
    one.parallel.overlap = overlap;
    CAPTURE(to_string(one), message);
    StepTimeline const timeline = timeline_of(one, message);
    PipelineTimeline const pipeline = pipeline_of(one, message);
    CHECK(timeline.step == pipeline.time + of_norm + of_update);
    REQUIRE(timeline.classes.size() == static_cast<std::size_t>(stages));
    CHECK(timeline.stages() == stages);
    for (ClassTimeline const& ranks : timeline.classes) {
      Ticks const idle = pipeline.idle(ranks.ranks.stage);
      CHECK(ranks.ranks.ranks == data_ranks);
      CHECK(ranks.compute == pipeline.time - idle + of_norm + of_update);
      CHECK(ranks.exposed() + ranks.others == idle);
      if (message == 0) CHECK(ranks.exposed() == 0); // a bubble is no communication
    }
  }
}

TEST_CASE("where collectives take no time, all strategies on stages take as long", "[parallel][timeline][pipeline]") {
  Index const stages = GENERATE(2, 3);
  for (PipelineCase one : cases_on(stages, 4))
    for (ParallelConfig const& strategy : std::vector<ParallelConfig>{{},
                                                                      {.strategy = Strategy::zero, .zero_stage = 1},
                                                                      {.strategy = Strategy::zero, .zero_stage = 2},
                                                                      {.strategy = Strategy::zero, .zero_stage = 3},
                                                                      {.strategy = Strategy::hsdp, .shard_group = 2}}) {
      one.parallel.strategy = strategy.strategy;
      one.parallel.zero_stage = strategy.zero_stage;
      one.parallel.shard_group = strategy.shard_group;
      CAPTURE(to_string(one));
      CHECK(timeline_of(one, 0).step == pipeline_of(one, 0).time + of_norm + of_update);
    }
}

TEST_CASE("messages of two stages pass in both directions at a time, however long they are",
          "[parallel][timeline][pipeline]") {
  Nanoseconds const message = GENERATE(25, 90, 1000);
  bool const overlap = GENERATE(true, false);
  for (PipelineCase one : cases_on(2, 1)) {
    if (one.parallel.pipeline_chunks > 1) continue;
    one.parallel.overlap = overlap;
    CAPTURE(to_string(one), message);
    CHECK(timeline_of(one, message).step == pipeline_of(one, message).time + of_norm + of_update);
  }
}

TEST_CASE("messages to two neighbours share a rank's port", "[parallel][timeline][pipeline]") {
  Nanoseconds const message = GENERATE(3, 90);
  Index const stages = GENERATE(2, 3, 4);
  for (PipelineCase const& one : cases_on(stages, 1)) {
    CAPTURE(to_string(one));
    CHECK(timeline_of(one, message).step >= pipeline_of(one, message).time + of_norm + of_update);
  }
}

TEST_CASE("what a stage waits for is a message of the stage before", "[parallel][timeline][pipeline]") {
  PipelineCase const one{{.pipeline = 2}, 1, 2, 2};
  StepTimeline const timeline = timeline_of(one, 3, Entries::yes);
  ClassTimeline const& last = timeline.classes.at(1);
  auto const wait = std::ranges::find_if(last.entries, [](TimelineEntry const& entry) {
    return entry.instruction.act == Act::wait && entry.instruction.started == Act::receive;
  });
  REQUIRE(wait != last.entries.end());
  CHECK(wait->end == 2 * forward + 3); // a block, and the message
  CHECK(std::ranges::any_of(last.collectives, [](TimelineEntry const& entry) {
    return entry.instruction.act == Act::receive && entry.end == 2 * forward + 3;
  }));
}

TEST_CASE("stages pay for messages, for the table's sum and for the norm of the whole model",
          "[parallel][prices][pipeline]") {
  constexpr AlphaBetaGamma costs{.alpha = 2e-6, .beta = 3e-9, .gamma = 5e-9};
  PipelineCase const one{{.pipeline = 3}, 2, 4, 3};
  std::vector<ShardPlan> const plans = plans_of(one);
  PartTimes const parts;
  StepPrices prices({&plans[0], &plans[2], &plans[4]}, {}, parts, {uniform_machine(costs)});
  REQUIRE(prices.classes().size() == 3);
  Instruction const send{.act = Act::send, .subject = 0, .micro_batch = 1, .piece = 0};
  Instruction const receive{.act = Act::receive, .subject = 0, .micro_batch = 1, .piece = 0};
  CollectivePrice const sent = prices.of(0, send).collectives.at(0), received = prices.of(1, receive).collectives.at(0);
  CHECK(sent.communicator == received.communicator);
  CHECK(sent.communicator.stages == StagePair{0, 1});
  CHECK(sent.wire == received.wire);
  CHECK(sent.wire == std::llround(1e9 * (costs.alpha + 4 * 24 * costs.beta)));
  Instruction back = send;
  back.subject = static_cast<Index>(MessageKind::gradient);
  CHECK(prices.of(1, back).collectives.at(0).communicator != sent.communicator); // a channel of its own

  CollectivePrice const tie = prices.of(0, {.act = Act::tie}).collectives.at(0);
  CHECK(tie.communicator == prices.of(2, {.act = Act::tie}).collectives.at(0).communicator);
  CHECK(tie.communicator.stages == StagePair{0, 2});
  double const table = 4.0 * static_cast<double>(plans[0].layout.share(plans[0].layout.table_group()).size());
  CHECK(tie.core == std::llround(1e9 * costs.gamma * table)); // both send all of it, and both add

  std::vector<CollectivePrice> const norm_of_model = prices.of(1, {.act = Act::norm}).collectives;
  REQUIRE(norm_of_model.size() == 1); // nothing is sharded
  CHECK(norm_of_model[0].communicator == CommunicatorId{Axis::pipeline});
  // rings: 2 (ranks - 1) rounds of messages; six groups over three stages, and 8 losses and 6 requests over six ranks
  CHECK(norm_of_model[0].wire == std::llround(1e9 * 4 * (costs.alpha + 2 * 8 * costs.beta)));
  CollectivePrice const agree = prices.of(1, {.act = Act::agree}).collectives.at(0);
  CHECK(agree.communicator == CommunicatorId{});
  CHECK(std::abs(agree.wire - std::llround(1e9 * 10 * (costs.alpha + 3 * 8 * costs.beta))) <= 1);
}
