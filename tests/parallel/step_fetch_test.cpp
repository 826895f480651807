// Shares of parameters that lie in a file: where step programs read them, that mistakes are found, and how long reads
// show.

#include "parallel/program/step_counts.hpp"
#include "parallel/program/step_timeline.hpp"
#include "support/broken_steps.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <algorithm>
#include <vector>

using namespace trainstone;
using namespace trainstone::test;

namespace {

ParallelConfig filed(std::int64_t prefetch = 1, bool overlap = true) {
  return {.strategy = Strategy::zero,
          .zero_stage = 3,
          .overlap = overlap,
          .prefetch = prefetch,
          .offload_parameters = Residence::file};
}

std::vector<std::string> gathers_of(ShardPlan const& plan) {
  std::vector<std::string> words;
  for_each_instruction(make_step_program(plan).evaluation, [&](Instruction const& one) {
    Act const act = one.act == Act::wait ? one.started : one.act;
    if (act == Act::fetch || act == Act::gather || one.act == Act::forward) words.push_back(to_string(one, plan));
  });
  return words;
}

} // namespace

TEST_CASE("shares are fetched while the gather before is under way", "[parallel][program][offload]") {
  CHECK(gathers_of(plans_of(filed(), 2, 1, {}).front()) == //
        std::vector<std::string>{"fetch root",
                                 "wait for fetch root",
                                 "gather root into slot 0",
                                 "fetch block 0",
                                 "wait for fetch block 0",
                                 "gather block 0 into slot 1",
                                 "fetch block 1",
                                 "wait for gather root in slot 0",
                                 "forward embed, micro-batch 0",
                                 "wait for gather block 0 in slot 1",
                                 "wait for fetch block 1",
                                 "gather block 1 into slot 0",
                                 "fetch root",
                                 "forward attention 0, micro-batch 0",
                                 "forward mlp 0, micro-batch 0",
                                 "wait for gather block 1 in slot 0",
                                 "wait for fetch root",
                                 "gather root into slot 1",
                                 "forward attention 1, micro-batch 0",
                                 "forward mlp 1, micro-batch 0",
                                 "wait for gather root in slot 1",
                                 "forward head, micro-batch 0"});
}

TEST_CASE("without overlap a rank waits for each read and each gather", "[parallel][program][offload]") {
  std::vector<std::string> const words = gathers_of(plans_of(filed(1, false), 2, 1, {}).front());
  CHECK(std::vector(words.begin(), words.begin() + 5) == //
        std::vector<std::string>{"fetch root", "wait for fetch root", "gather root into slot 0",
                                 "wait for gather root in slot 0", "forward embed, micro-batch 0"});
}

TEST_CASE("programs that fetch shares are proved, also of a rank that shares with nobody",
          "[parallel][program][offload]") {
  Rank const ranks = GENERATE(1, 2, 4);
  std::int64_t const prefetch = GENERATE(0, 1, 2, 5);
  bool const overlap = GENERATE(true, false);
  std::vector<ParallelConfig> all{filed(prefetch, overlap)};
  all.push_back(all.front());
  all.back().partition = StatePartition::inter_layer;
  if (ranks > 1) all.push_back(hsdp);
  for (ParallelConfig parallel : all) {
    parallel.offload_parameters = Residence::file;
    for (Index const micro_batches : {1, 3}) {
      std::vector<ShardPlan> const plans = plans_of(parallel, ranks, micro_batches, {});
      CHECK_NOTHROW(Steps(plans));
      // every gather is of fetched shares: 4 units forward (root twice), and 2 blocks again, for each micro-batch
      StateMoves const moves = moves_of(make_step_program(plans.front()).step, plans.front());
      std::uint64_t expected = 0;
      StateLayout const& layout = plans.front().layout;
      for (Index group = 0; group < std::ssize(layout.groups); ++group) {
        std::uint64_t const bytes = 4 * static_cast<std::uint64_t>(layout.share(group).size());
        expected += 2 * static_cast<std::uint64_t>(micro_batches) * ((bytes + 4095) / 4096 * 4096);
      }
      CHECK(moves.read == expected);
      CHECK(moves.written == 0);
    }
  }
}

TEST_CASE("a gather of shares that were not fetched, or are on their way, is found",
          "[parallel][program][defects][offload]") {
  Steps const right(filed());
  Steps steps = right;
  steps.drop_everywhere(waits_for(Act::fetch, 1));
  check_found(steps, StepDefect::undefined_read, "\"gather block 0 into slot 1\": its shares were not fetched, or are");
  steps = right;
  steps.drop_everywhere(is(Act::fetch, 1));
  steps.drop_everywhere(waits_for(Act::fetch, 1));
  check_found(steps, StepDefect::undefined_read, "\"gather block 0 into slot 1\": its shares were not fetched");
}

TEST_CASE("a fetch slot that is used again too early is found", "[parallel][program][defects][offload]") {
  Steps const right(filed());
  Steps steps = right;
  for (Rank rank = 0; rank < 4; ++rank) {
    auto const of_block = [](Instruction const& one) {
      return (one.act == Act::fetch || one.started == Act::fetch) && one.subject == 1;
    };
    std::vector<Instruction> moved{steps.at(rank, of_block, 0), steps.at(rank, of_block, 1)};
    steps.drop(rank, of_block, 0);
    steps.drop(rank, of_block, 0);
    for (Instruction& one : moved) one.slot = 0; // where root is
    auto const [same, before] = steps.find(rank, is(Act::gather, 0));
    same->insert(same->begin() + before, moved.begin(), moved.end());
  }
  check_found(steps, StepDefect::never_read, "no gather has taken the shares of root before it");
  steps = right;
  steps.at(3, is(Act::fetch)).slot = 2;
  check_found(steps, StepDefect::malformed, "fetch slot 2 of 2 does not exist");
}

TEST_CASE("shares that were fetched before the update are found", "[parallel][program][defects][offload]") {
  Steps steps(filed(), 2, 1);
  for (StepProgram& program : steps.programs) { // a gather behind the update takes what was fetched before it
    std::vector<Instruction>& update = program.update.front().instructions;
    update.insert(update.begin(), {{.act = Act::fetch, .subject = 0, .slot = 0},
                                   {.act = Act::wait, .subject = 0, .slot = 0, .started = Act::fetch}});
    update.push_back({.act = Act::gather, .subject = 0, .slot = 0});
  }
  check_found(steps, StepDefect::old_parameters, "its shares were fetched before the last update");
}

TEST_CASE("a file is a wire of its own, that a step waits for as long as nothing covers it",
          "[parallel][timeline][offload]") {
  constexpr Nanoseconds computed = 100; // by a block, forward and backward alike
  Nanoseconds const read = GENERATE(1, 40, 100, 170);
  std::int64_t const prefetch = GENERATE(1, 2);
  ShardPlan const plan = plans_of(filed(prefetch), 4, 1, {}).front();
  auto const price = [&](std::size_t, Instruction const& one) -> InstructionPrice {
    bool const is_block = (one.act == Act::forward || one.act == Act::backward) && plan.parts[one.subject].block >= 0;
    if (is_block)
      return {computed / 2 / (one.piece == Instruction::none ? 1 : std::ssize(plan.parts.backward(one.subject)))};
    if (one.act == Act::fetch) return {0, {{.communicator = {.is_file = true}, .wire = read, .port = PortUse::none}}};
    return {};
  };
  StepTimeline const timeline =
      play_step({make_step_program(plan)}, rank_classes(plan.layout.mesh, {0, 0, 0, 0}), price);
  Nanoseconds const exposed = timeline.busiest().act.at(static_cast<std::size_t>(Act::fetch));
  CHECK(timeline.step == timeline.busiest().compute + exposed);
  CHECK(timeline.busiest().compute == 4 * computed);
  // Reads of root, block 0, 1, root, 1, 0 follow each other. All of them show but what blocks cover.
  CHECK(exposed >= 6 * read - 4 * computed);
  // While the root, block 0, block 1 and, behind the head, block 0 again are read, nothing is computed.
  if (prefetch == 1 && read <= computed) CHECK(exposed == 4 * read);
}
