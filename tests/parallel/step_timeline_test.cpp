// What a step takes, by prices that are made up: closed forms for what overlaps and what does not.

#include "parallel/plan/parallel_problems.hpp"
#include "parallel/program/step_timeline.hpp"

#include "core/error.hpp"
#include "parallel/plan/strategies.hpp"
#include "parallel/program/passes.hpp"
#include "parallel/program/step_programs.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <algorithm>
#include <numeric>

using namespace trainstone;

namespace {

constexpr Index layers = 5;

ShardPlan plan_of(ParallelConfig const& parallel, Rank ranks, Index micro_batches = 1) {
  GptConfig const model{.layers = layers, .heads = 1, .channels = 16, .context = 4, .vocab = 16};
  return make_shard_plan(parallel, {}, {}, {}, ParameterTable(model, mesh_of(parallel, ranks).parts()),
                         Topology::one_node(ranks), 0, micro_batches);
}

/// Every unit is a bucket, and any number may be in flight: on four ranks a unit has 4096 elements.
ParallelConfig ddp() {
  return {.strategy = Strategy::ddp, .bucket_bytes = 16384, .first_bucket_bytes = 16384, .in_flight = 100};
}

/// And one for dedicated servers.
std::vector<RankClass> one_class(ShardPlan const& plan) {
  std::vector<Index> keys;
  for (Rank rank = 0; rank < plan.layout.mesh.ranks(); ++rank) keys.push_back(plan.layout.mesh.serves(rank) ? 1 : 0);
  return rank_classes(plan.layout.mesh, keys);
}

std::vector<StepProgram> programs_of(ShardPlan const& plan) {
  StepProgram const program = make_step_program(plan);
  return {program, make_server_program(plan)};
}

std::vector<RankClass> a_class_for_every_rank(ShardPlan const& plan) {
  std::vector<Index> keys(static_cast<std::size_t>(plan.layout.mesh.ranks()));
  std::iota(keys.begin(), keys.end(), Index{0});
  return rank_classes(plan.layout.mesh, keys);
}

/// Prices of acts, for a block as a whole: attention and mlp have half of it each, and pieces of a backward have equal
/// times. An act with a collective has one; those of reductions over two axes come one after the other.
struct Prices {
  Nanoseconds forward = 0, backward = 0, loss = 0, norm = 0, update = 0;
  CollectivePrice gather = {}, reduce = {};

  InstructionPrice of(ShardPlan const& plan, Instruction const& one) const {
    switch (one.act) {
    case Act::forward: return {of_part(plan, one, forward)};
    case Act::backward: return {of_part(plan, one, backward)};
    case Act::loss: return {loss};
    case Act::norm: return {norm};
    case Act::update: return {update};
    case Act::gather:
    case Act::publish: return {0, {on(gather, Axis::shard)}};
    case Act::reduce:
    case Act::reduce_sums: {
      InstructionPrice price;
      for (PlannedCollective const& step : plan.reductions.collectives)
        if (plan.reductions.is_of_sums(step) == (one.act == Act::reduce_sums))
          price.collectives.push_back(on(reduce, step.axis));
      return price;
    }
    default: return {};
    }
  }
  static Nanoseconds of_part(ShardPlan const& plan, Instruction const& one, Nanoseconds of_unit) {
    bool const is_half = plan.parts.unit(one.subject) > 0;
    auto const pieces = one.piece == Instruction::none ? 1 : std::ssize(plan.parts.backward(one.subject));
    return of_unit / (is_half ? 2 : 1) / pieces;
  }
  PriceOf for_plan(ShardPlan const& plan) const {
    return [*this, &plan](std::size_t, Instruction const& one) { return of(plan, one); };
  }
  static CollectivePrice on(CollectivePrice price, Axis axis) {
    price.communicator.axis = axis;
    return price;
  }
};

StepTimeline timeline_of(ShardPlan const& plan, Prices const& prices) {
  return play_step(programs_of(plan), one_class(plan), prices.for_plan(plan));
}

Nanoseconds exposed(StepTimeline const& timeline, Act act) {
  return timeline.busiest().act.at(static_cast<std::size_t>(act));
}

constexpr Nanoseconds forward = 30, backward = 72, loss = 9, norm = 5, update = 11;
constexpr Nanoseconds computation = (layers + 2) * (forward + backward) + loss + norm + update;
constexpr Prices computing{.forward = forward, .backward = backward, .loss = loss, .norm = norm, .update = update};

Prices with(CollectivePrice gather, CollectivePrice reduce) {
  Prices prices = computing;
  prices.gather = gather;
  prices.reduce = reduce;
  return prices;
}

} // namespace

TEST_CASE("without overlap a step is its computation and its communication, one after the other",
          "[parallel][timeline]") {
  ParallelConfig parallel = ddp();
  parallel.overlap = false;
  ShardPlan const plan = plan_of(parallel, 4);
  REQUIRE(plan.reductions.buckets.buckets() == layers + 1);
  StepTimeline const timeline = timeline_of(plan, with({}, {.core = 3, .wire = 20}));
  CHECK(timeline.step == computation + (layers + 1) * 23);
  CHECK(timeline.busiest().compute == computation);
  CHECK(exposed(timeline, Act::reduce) == (layers + 1) * 23);
}

TEST_CASE("on a network that takes no time a step is its computation", "[parallel][timeline]") {
  Rank const ranks = GENERATE(1, 2, 4, 6);
  Index const micro_batches = GENERATE(1, 3);
  for (ParallelConfig const& parallel : all_strategies(ranks)) {
    if (find_parallel_problem(parallel, {}, ranks, micro_batches)) continue;
    StepTimeline const timeline = timeline_of(plan_of(parallel, ranks, micro_batches), computing);
    CHECK(timeline.step == computation + (micro_batches - 1) * (computation - computing.norm - computing.update));
    CHECK(timeline.busiest().exposed() == 0);
  }
}

TEST_CASE("reductions on the wire hide behind backward, as far as there is any left", "[parallel][timeline]") {
  // The head completes nothing. Then a bucket is complete after every backward, and they share the wire.
  Nanoseconds const wire = GENERATE(1, 71, 72, 73, 200);
  StepTimeline const timeline = timeline_of(plan_of(ddp(), 4), with({}, {.wire = wire}));
  Nanoseconds const left = std::max(wire, (layers + 1) * wire - layers * backward);
  CHECK(exposed(timeline, Act::reduce) == left);
  CHECK(timeline.step == computation + left);
}

TEST_CASE("the core's part of a collective is never hidden", "[parallel][timeline]") {
  Nanoseconds const core = GENERATE(1, 20, 300);
  CHECK(timeline_of(plan_of(ddp(), 4), with({}, {.core = core})).step == computation + (layers + 1) * core);
  ShardPlan const plan = plan_of({.strategy = Strategy::zero, .zero_stage = 3}, 4);
  // root for embed, blocks, root for head, and blocks again
  CHECK(timeline_of(plan, with({.core = core}, {})).step == computation + (2 * layers + 2) * core);
}

TEST_CASE("with one gather ahead, only the first one shows if each is shorter than what is computed meanwhile",
          "[parallel][timeline]") {
  ShardPlan const plan = plan_of({.strategy = Strategy::zero, .zero_stage = 3, .prefetch = 1}, 4);
  Nanoseconds const wire = GENERATE(1, 17, 30);
  StepTimeline const timeline = timeline_of(plan, with({.wire = wire}, {}));
  CHECK(exposed(timeline, Act::gather) == wire);
  CHECK(timeline.step == computation + wire);
}

TEST_CASE("without a gather ahead, every gather shows", "[parallel][timeline]") {
  ShardPlan const plan = plan_of({.strategy = Strategy::zero, .zero_stage = 3, .prefetch = 0}, 4);
  CHECK(exposed(timeline_of(plan, with({.wire = 17}, {})), Act::gather) == (2 * layers + 2) * 17);
}

TEST_CASE("updated parameters are published while the next step's forward computes", "[parallel][timeline]") {
  ShardPlan const plan = plan_of({.strategy = Strategy::zero, .zero_stage = 1, .prefetch = 1}, 4);
  StepTimeline const timeline = timeline_of(plan, with({.wire = 30}, {}));
  CHECK(exposed(timeline, Act::publish) == 30); // root, which forward needs first
}

TEST_CASE("a step is computation and exposed communication, and this is never negative", "[parallel][timeline]") {
  Rank const ranks = GENERATE(1, 2, 4, 6);
  Index const micro_batches = GENERATE(1, 2, 5);
  Prices const prices = with({.core = 7, .wire = 41}, {.core = 13, .wire = 57});
  for (ParallelConfig parallel : all_strategies(ranks))
    for (double const bucket : {1.0, 1e9}) {
      parallel.bucket_bytes = bucket;
      if (find_parallel_problem(parallel, {}, ranks, micro_batches)) continue;
      ShardPlan const plan = plan_of(parallel, ranks, micro_batches);
      StepTimeline const timeline = timeline_of(plan, prices);
      ClassTimeline const& one = timeline.busiest();
      CHECK(one.compute + one.exposed() == timeline.step);
      CHECK(std::ranges::all_of(one.act, [](Nanoseconds time) { return time >= 0; }));
      CHECK(one.ranks.ranks == ranks - plan.layout.mesh.servers);
    }
}

TEST_CASE("ranks that are played one by one take as long as one that stands for all", "[parallel][timeline]") {
  Rank const ranks = GENERATE(2, 3, 4, 6);
  Index const micro_batches = GENERATE(1, 3, 9);
  Prices const prices = with({.core = 7, .wire = 41}, {.core = 13, .wire = 57});
  for (ParallelConfig const& parallel : all_strategies(ranks)) {
    if (find_parallel_problem(parallel, {}, ranks, micro_batches)) continue;
    ShardPlan const plan = plan_of(parallel, ranks, micro_batches);
    StepTimeline const together = play_step(programs_of(plan), one_class(plan), prices.for_plan(plan), Entries::yes);
    StepTimeline const apart =
        play_step(programs_of(plan), a_class_for_every_rank(plan), prices.for_plan(plan), Entries::yes);
    CHECK(apart.step == together.step);
    REQUIRE(std::ssize(apart.classes) == ranks);
    for (ClassTimeline const& one : apart.classes) {
      ClassTimeline const& kind = together.classes.at(plan.layout.mesh.serves(one.ranks.first) ? 1 : 0);
      CHECK(one.act == kind.act);
      if (micro_batches > 3) continue; // the first rank alone decides where a repetition begins
      CHECK(one.entries == kind.entries);
      CHECK(one.collectives == kind.collectives);
    }
  }
}

TEST_CASE("a million micro-batches take as long as they would one by one, and few are played", "[parallel][timeline]") {
  Prices const prices = with({.core = 7, .wire = 41}, {.core = 13, .wire = 57});
  constexpr Index million = 1'000'000, some = 12;
  for (ParallelConfig parallel : all_strategies(4))
    for (ReduceWhen const when : {ReduceWhen::by_strategy, ReduceWhen::each}) {
      parallel.reduce = when;
      if (has_dedicated_servers(parallel)) continue; // a server repeats nothing, so all micro-batches are played
      if (find_parallel_problem(parallel, {}, 4, some)) continue;
      auto const step = [&](Index micro_batches) {
        return timeline_of(plan_of(parallel, 4, micro_batches), prices).step;
      };
      Nanoseconds const one = step(some + 1) - step(some);
      CHECK(one >= (layers + 2) * (forward + backward) + loss);
      CHECK(step(million) == step(some) + (million - some) * one);
      ShardPlan const plan = plan_of(parallel, 4, million);
      StepTimeline const timeline = play_step(programs_of(plan), one_class(plan), prices.for_plan(plan), Entries::yes);
      CHECK(timeline.classes[0].entries.size() < 2000);
      Index forwards = 0;
      for (TimelineEntry const& entry : timeline.classes[0].entries)
        if (entry.instruction.act == Act::forward) forwards += entry.times;
      CHECK(forwards == million * (2 * layers + 2));
    }
}

TEST_CASE("entries follow each other without gaps and fill the step", "[parallel][timeline]") {
  ShardPlan const plan = plan_of({.strategy = Strategy::zero, .zero_stage = 3}, 4);
  Prices const prices = with({.core = 7, .wire = 41}, {.core = 13, .wire = 57});
  StepTimeline const timeline = play_step(programs_of(plan), one_class(plan), prices.for_plan(plan), Entries::yes);
  Nanoseconds end = 0;
  for (TimelineEntry const& entry : timeline.classes[0].entries) {
    CHECK(entry.begin == end);
    end = entry.end;
  }
  CHECK(end == timeline.step);
}

TEST_CASE("ranks that compute less wait for the others", "[parallel][timeline]") {
  ShardPlan const plan = plan_of(ddp(), 4);
  std::vector<RankClass> const classes = rank_classes(plan.layout.mesh, {0, 1, 0, 0});
  REQUIRE(classes.size() == 2);
  PriceOf const price = [&](std::size_t number, Instruction const& one) {
    InstructionPrice of_one = with({}, {.core = 1}).of(plan, one);
    if (number == 1) of_one.compute *= 2;
    return of_one;
  };
  StepTimeline const timeline = play_step({make_step_program(plan)}, classes, price);
  CHECK(timeline.step == 2 * computation + layers + 1);
  CHECK(timeline.busiest().ranks.first == 1);
  CHECK(timeline.classes[0].compute == computation);
  CHECK(timeline.classes[0].others == computation);
  CHECK(timeline.classes[0].exposed() == layers + 1);
}

TEST_CASE("collectives of several communicators share a rank's ports", "[parallel][timeline]") {
  ShardPlan const plan = plan_of({.strategy = Strategy::hsdp, .shard_group = 2}, 4, 2);
  constexpr Nanoseconds wire = 100'000;
  StepTimeline const timeline = timeline_of(plan, with({.wire = wire}, {.wire = wire}));
  Index collectives = 0;
  for_each_instruction(make_step_program(plan).step, [&](Instruction const& one) {
    bool const starts = one.act == Act::gather || one.act == Act::reduce || one.act == Act::reduce_sums;
    if (starts) ++collectives;
  });
  CHECK(timeline.step >= collectives * wire);
}

TEST_CASE("a wait for what was not started is refused", "[parallel][timeline]") {
  ShardPlan const plan = plan_of(ddp(), 2);
  StepProgram program = make_step_program(plan);
  std::erase_if(program.step.back().instructions, [](Instruction const& one) { return one.act == Act::reduce; });
  CHECK_THROWS_AS(play_step({program}, one_class(plan), computing.for_plan(plan)), Error);
}

TEST_CASE("classes whose lines meet others are refused", "[parallel][timeline]") {
  Mesh const mesh = plan_of({.strategy = Strategy::hsdp, .shard_group = 2}, 4).layout.mesh; // lines {0, 1} and {2, 3}
  CHECK_THROWS_AS(rank_classes(mesh, {0, 1, 0, 0}), Error);
  CHECK(rank_classes(mesh, {0, 1, 0, 1}).size() == 2);
}
