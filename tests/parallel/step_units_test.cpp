// Steps whose units have several blocks: closed forms of what they gather, send and hold; where their reductions start;
// and mistakes in them that are found.

#include "parallel/program/step_counts.hpp"
#include "support/broken_steps.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

using namespace trainstone;
using namespace trainstone::test;

namespace {

constexpr Index layers = 5, h = 16;
constexpr Index block = 12 * h * h + 13 * h, root = (128 + 4 + 2) * h; // of each part, without padding

Index padded(Index elements, Index ranks) { return (elements + 256 * ranks - 1) / (256 * ranks) * 256 * ranks; }
Index padded_root(Index ranks) { return padded(128 * h, ranks) + padded(4 * h, ranks) + padded(2 * h, ranks); }
Index units_of(Index blocks) { return (layers + blocks - 1) / blocks; }

ShardPlan plan_of(ParallelConfig const& parallel, Rank ranks, Rank rank, Index micro_batches) {
  GptConfig const model{.layers = layers, .heads = 1, .channels = h, .context = 4, .vocab = 16};
  ParameterTable const table(model, ranks, {}, parallel.unit);
  return make_shard_plan(parallel, {}, {}, {}, table, Topology::one_node(ranks), rank, micro_batches);
}

std::vector<ShardPlan> plans_of(ParallelConfig const& parallel, Rank ranks, Index micro_batches = 1) {
  std::vector<ShardPlan> plans;
  for (Rank rank = 0; rank < ranks; ++rank) plans.push_back(plan_of(parallel, ranks, rank, micro_batches));
  return plans;
}

struct Sent {
  Index times = 0;
  std::uint64_t messages = 0, bytes = 0;
};

Sent sent_for(std::string_view what, ShardPlan const& plan) {
  Sent sum;
  for (RepeatedCollective const& one : collectives_of(make_step_outline(plan).step, plan)) {
    if (one.what != what) continue;
    Traffic const traffic = predict_traffic(schedule_of(one.planned, plan.layout.mesh, plan.layout.rank),
                                            one.planned.problem.topology, one.element_bytes);
    sum.times += static_cast<Index>(one.times);
    sum.messages += one.times * traffic.messages;
    sum.bytes += one.times * traffic.bytes;
  }
  return sum;
}

ParallelConfig zero3_of(Index blocks) {
  ParallelConfig parallel = zero3;
  parallel.unit = blocks;
  return parallel;
}

std::vector<std::string> reductions_and_backward(ParallelConfig const& parallel, Rank ranks) {
  ShardPlan const plan = plan_of(parallel, ranks, 0, 1);
  std::vector<std::string> found;
  for_each_instruction(make_step_program(plan).step, [&](Instruction const& one) {
    if (one.act == Act::backward || one.act == Act::reduce) found.push_back(to_string(one, plan));
  });
  return found;
}

} // namespace

TEST_CASE("units of k blocks are gathered ceil(L/k) + 1 times forward, and as often backward", "[parallel][unit]") {
  auto const ranks = GENERATE(Rank{2}, Rank{3}, Rank{4});
  Index const micro_batches = GENERATE(1, 3), prefetch = GENERATE(0, 1, 2);
  auto const others = static_cast<std::uint64_t>(ranks - 1);
  Index const psi = padded_root(ranks) + layers * padded(block, ranks);
  for (Index const blocks : {1, 2, 3, 4, 5}) {
    ParallelConfig parallel = zero3_of(blocks);
    parallel.prefetch = prefetch;
    ShardPlan const plan = plan_of(parallel, ranks, 1, micro_batches);
    INFO(blocks << " blocks on " << ranks << " ranks");
    Sent const gathered = sent_for("parameters", plan);
    CHECK(gathered.times == 2 * micro_batches * (units_of(blocks) + 1));
    CHECK(gathered.messages == static_cast<std::uint64_t>(gathered.times) * others); // of a ring
    CHECK(gathered.bytes == static_cast<std::uint64_t>(2 * micro_batches * psi / ranks) * others * sizeof(float));
    CHECK(plan.gathers.slots == prefetch + 1);
    CHECK(plan.layout.largest_unit() == std::max(padded_root(ranks), blocks * padded(block, ranks)));
    CHECK(plan.layout.share_elements() == psi / ranks); // whatever travels
  }
}

TEST_CASE("gradients of a unit wait for its first block in memory of their own", "[parallel][unit]") {
  auto const ranks = GENERATE(Rank{2}, Rank{3}, Rank{4});
  for (Index const blocks : {1, 2, 3, 4, 5}) {
    ParallelConfig parallel = zero3_of(blocks);
    Index const unit = blocks * padded(block, ranks);
    parallel.bucket_bytes = parallel.first_bucket_bytes = static_cast<double>(unit) * sizeof(float);
    INFO(blocks << " blocks on " << ranks << " ranks");
    ShardPlan const plan = plan_of(parallel, ranks, 0, 1);
    CHECK(plan.reductions.fresh_elements() == padded_root(ranks) + std::min<Index>(2, units_of(blocks)) * unit);
    Sent const reduced = sent_for("gradients", plan);
    Index const of_root = padded_root(ranks) > unit ? 2 : 1; // where root is larger than a bucket
    CHECK(reduced.times == units_of(blocks) + of_root);
    Index const psi = padded_root(ranks) + layers * padded(block, ranks);
    CHECK(reduced.bytes == static_cast<std::uint64_t>(psi / ranks * (ranks - 1)) * sizeof(float));
  }
}

TEST_CASE("a unit is reduced behind the backward of its first block, and its slices as they are complete",
          "[parallel][unit]") {
  ParallelConfig parallel = zero3_of(3); // blocks 0 to 2, and 3 to 4
  parallel.bucket_bytes = parallel.first_bucket_bytes = static_cast<double>(3 * padded(block, 2) * 4);
  std::string const end = ", micro-batch 0";
  auto const part = [&](char const* kind, int of) { return fmt::format("backward {} {}{}", kind, of, end); };
  CHECK(reductions_and_backward(parallel, 2) ==
        std::vector<std::string>{"backward head" + end, part("mlp", 4), part("attention", 4), part("mlp", 3),
                                 part("attention", 3), "reduce bucket 0" + end, part("mlp", 2), part("attention", 2),
                                 part("mlp", 1), part("attention", 1), part("mlp", 0), part("attention", 0),
                                 "reduce bucket 1" + end, "backward embed" + end, "reduce bucket 2" + end});
}

TEST_CASE("slices of a unit are reduced as its blocks complete them, from its end to its begin", "[parallel][unit]") {
  ParallelConfig parallel = zero3_of(3); // blocks 0 to 2, and 3 to 4
  parallel.bucket_bytes = parallel.first_bucket_bytes = static_cast<double>(padded(block, 2) * 4) * 2 / 3;
  parallel.in_flight = 9;
  auto const first_place = [](std::vector<std::string> const& words, std::string const& begin) {
    auto const found = std::ranges::find_if(words, [&](std::string const& one) { return one.starts_with(begin); });
    REQUIRE(found != words.end());
    return found - words.begin();
  };
  std::vector<std::string> const words = reductions_and_backward(parallel, 2);
  // a slice has a range of both owners' shares of the blocks; bucket 0 has shares of block 4 alone
  CHECK(first_place(words, "reduce bucket 0,") > first_place(words, "backward mlp 4"));
  CHECK(first_place(words, "reduce bucket 0,") < first_place(words, "backward mlp 3"));
  parallel.overlap = false;
  std::vector<std::string> const in_turn = reductions_and_backward(parallel, 2);
  CHECK(first_place(in_turn, "reduce bucket 0,") == first_place(in_turn, "backward attention 3") + 1);
}

TEST_CASE("mistakes in units of several blocks are found", "[parallel][program][unit][defects]") {
  ParallelConfig parallel = zero3_of(2); // root, blocks 0 to 1, blocks 2 to 3, block 4
  parallel.bucket_bytes = parallel.first_bucket_bytes = static_cast<double>(2 * padded(block, 2) * 4);
  Steps steps(plans_of(parallel, 2));
  SECTION("nothing is wrong before") { CHECK_FALSE(find_step_defect(steps.plans, steps.programs)); }
  SECTION("the second block of a unit is read while the unit is on its way") {
    for (Rank const rank : {0, 1}) { // the wait comes one block late
      auto const [list, wait] = steps.find(rank, waits_for(Act::gather, 1));
      auto const late = std::find_if(list->begin() + wait, list->end(), test::is(Act::forward, 3));
      std::rotate(list->begin() + wait, list->begin() + wait + 1, late);
    }
    check_found(steps, StepDefect::undefined_read, "the parameters of blocks 0 to 1 are still on their way");
  }
  SECTION("a reduction starts behind the unit's last block") {
    for (Rank const rank : {0, 1}) {
      auto const [list, reduce] = steps.find(rank, test::is(Act::reduce, 1));
      Instruction const early = (*list)[static_cast<std::size_t>(reduce)];
      list->erase(list->begin() + reduce);
      auto const last = std::ranges::find_if(*list, test::is(Act::backward, 7)); // attention 3
      list->insert(last + 1, early);
    }
    check_found(steps, StepDefect::undefined_read, "the gradient of block 2 is not there");
  }
}

TEST_CASE("parameters of a unit that are older than its last update are found", "[parallel][program][unit][defects]") {
  ParallelConfig parallel = zero1;
  parallel.unit = 2;
  Steps steps(plans_of(parallel, 2));
  for (StepProgram& program : steps.programs) {
    std::erase_if(program.update.front().instructions, test::is(Act::publish, 1));
    for (std::vector<Segment>* part : {&program.step, &program.evaluation})
      for (Segment& segment : *part) std::erase_if(segment.instructions, waits_for(Act::publish, 1));
  }
  check_found(steps, StepDefect::old_parameters, "the parameters of blocks 0 to 1 are those after 0 updates");
}
