// Each way of breaking a step program is found by its name, and the message says where.

#include "core/error.hpp"
#include "parallel/program/step_programs.hpp"
#include "parallel/program/step_simulator.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <algorithm>
#include <functional>

using namespace trainstone;
using Catch::Matchers::ContainsSubstring;

namespace {

/// A strategy on some ranks: plans and correct programs, in which tests make mistakes.
struct Steps {
  std::vector<ShardPlan> plans;
  std::vector<StepProgram> programs;

  explicit Steps(ParallelConfig const& parallel, Rank ranks = 4, Index micro_batches = 2,
                 GptOptions const& options = {}) {
    GptConfig const model{.layers = 2, .heads = 1, .channels = 16, .context = 4, .vocab = 16};
    ParameterTable const table(model, ranks);
    for (Rank rank = 0; rank < ranks; ++rank) {
      plans.push_back(
          make_shard_plan(parallel, {}, {}, {}, table, Topology::one_node(ranks), rank, micro_batches, options));
      programs.push_back(make_step_program(plans.back()));
    }
    if (find_step_defect(plans, programs)) throw Error("a program is wrong from the beginning");
  }

  using Same = std::function<bool(Instruction const&)>;

  /// The `number`-th instruction (from 0) of a rank's step that is meant.
  std::pair<std::vector<Instruction>*, std::ptrdiff_t> find(Rank rank, Same const& meant, int number = 0) {
    for (Segment& segment : programs[static_cast<std::size_t>(rank)].step)
      for (std::size_t i = 0; i < segment.instructions.size(); ++i)
        if (meant(segment.instructions[i]) && number-- == 0)
          return {&segment.instructions, static_cast<std::ptrdiff_t>(i)};
    throw Error("the program has no such instruction");
  }
  Instruction& at(Rank rank, Same const& meant, int number = 0) {
    auto const [list, place] = find(rank, meant, number);
    return (*list)[static_cast<std::size_t>(place)];
  }
  void drop(Rank rank, Same const& meant, int number = 0) {
    auto const [list, place] = find(rank, meant, number);
    list->erase(list->begin() + place);
  }
  void drop_everywhere(Same const& meant, int number = 0) {
    for (Rank rank = 0; rank < static_cast<Rank>(plans.size()); ++rank) drop(rank, meant, number);
  }
  void repeat_everywhere(Same const& meant, int number = 0) {
    for (Rank rank = 0; rank < static_cast<Rank>(plans.size()); ++rank) {
      auto const [list, place] = find(rank, meant, number);
      Instruction const twice = (*list)[static_cast<std::size_t>(place)];
      list->insert(list->begin() + place, twice);
    }
  }
};

void check_found(Steps const& steps, StepDefect defect, std::string const& words) {
  std::optional<StepFinding> const found = find_step_defect(steps.plans, steps.programs);
  REQUIRE(found);
  INFO(found->message);
  CHECK(to_string(found->defect) == to_string(defect));
  CHECK_THAT(found->message, ContainsSubstring(words));
}

Steps::Same is(Act act, Index subject = Instruction::none, Index micro_batch = Instruction::none) {
  return [=](Instruction const& one) {
    return one.act == act && (subject == Instruction::none || one.subject == subject) &&
           (micro_batch == Instruction::none || one.micro_batch == micro_batch);
  };
}

Steps::Same waits_for(Act act, Index subject = Instruction::none) {
  return [=](Instruction const& one) {
    return one.act == Act::wait && one.started == act && (subject == Instruction::none || one.subject == subject);
  };
}

ParallelConfig const ddp{};
ParallelConfig const in_slices{.bucket_bytes = 4096, .first_bucket_bytes = 4096}; // four of a block
ParallelConfig const zero1{.strategy = Strategy::zero, .zero_stage = 1};
ParallelConfig const zero2{.strategy = Strategy::zero, .zero_stage = 2};
ParallelConfig const zero3{.strategy = Strategy::zero, .zero_stage = 3};
ParallelConfig const hsdp{.strategy = Strategy::hsdp, .shard_group = 2};
ParallelConfig const ordered{.reduction = ReductionMode::ordered};

} // namespace

TEST_CASE("a gather without a wait is found where parameters are read", "[parallel][program][defects]") {
  Steps steps(zero3);
  steps.drop_everywhere(waits_for(Act::gather, 1));
  check_found(steps, StepDefect::undefined_read,
              "\"forward attention 0, micro-batch 0\": the parameters of block 0 are still");
}

TEST_CASE("a group that a rank does not gather is found by the next collective", "[parallel][program][defects]") {
  Steps steps(zero3, 2, 1);
  for (Act const act : {Act::gather, Act::wait}) // of block 0 for backward
    steps.drop(
        1, [=](Instruction const& one) { return one.act == act && one.started != Act::reduce && one.subject == 1; }, 1);
  check_found(steps, StepDefect::other_order,
              "rank 1: \"reduce bucket 0, micro-batch 0\": rank 0 starts \"gather block 0");
}

TEST_CASE("a block that does not compute again what another block has overwritten is found",
          "[parallel][program][defects]") {
  Steps full(ddp, 2, 2, {.recompute = {Recompute::full}});
  full.drop_everywhere(is(Act::recompute, 1)); // attention of block 0; block 1 finds what it has left
  check_found(full, StepDefect::undefined_read,
              "\"recompute mlp 0, micro-batch 0\": activation \"recomputed ln2\" of the micro-batch is not there");
  Steps half(ddp, 2, 2, {.recompute = {Recompute::full}});
  half.drop_everywhere(is(Act::recompute, 2), 1);
  check_found(half, StepDefect::undefined_read,
              "\"backward mlp 0, micro-batch 1\": activation \"recomputed fc\" of the micro-batch is not there");
  Steps selective(zero3, 2, 2, {.recompute = {Recompute::selective}});
  selective.drop_everywhere(is(Act::recompute, 1));
  check_found(selective, StepDefect::undefined_read,
              "\"backward attention 0, micro-batch 0\": activation \"recomputed probabilities\" of");
}

TEST_CASE("the two parts of the token table's gradient must be added once, when both are complete",
          "[parallel][program][defects]") {
  Steps none(ordered);
  none.drop_everywhere(is(Act::tie));
  check_found(none, StepDefect::undefined_read, "\"norm\": the two parts of the token table's gradient have not been");
  Steps twice(ordered);
  twice.repeat_everywhere(is(Act::tie));
  check_found(twice, StepDefect::incomplete, "\"tie the token table\" was done 2 times");
  Steps early(ordered);
  for (Rank rank = 0; rank < 4; ++rank) {
    auto const [list, place] = early.find(rank, is(Act::tie));
    list->erase(list->begin() + place);
    auto const [before, wait] = early.find(rank, waits_for(Act::reduce));
    before->insert(before->begin() + wait, {.act = Act::tie});
  }
  check_found(early, StepDefect::undefined_read, "\"tie the token table\": bucket");
  Steps fast(ddp);
  fast.at(0, is(Act::norm)).act = Act::tie;
  check_found(fast, StepDefect::malformed, "\"tie the token table\": the token table has one gradient");
}

TEST_CASE("embed's part of the token table's gradient is not set to zero while it is reduced",
          "[parallel][program][defects]") {
  ParallelConfig each = ordered; // one run of all gradients, which are reduced after every micro-batch
  each.strategy = Strategy::zero;
  each.zero_stage = 2;
  Steps steps(each, 2, 2);
  Index const root = std::ssize(steps.plans.front().reductions.buckets.runs) - 1;
  Index const bucket = steps.plans.front().reductions.buckets.runs[static_cast<std::size_t>(root)].first_bucket;
  for (Rank rank = 0; rank < 2; ++rank) { // of the first micro-batch, behind the next one's head
    auto const [list, place] = steps.find(rank, waits_for(Act::reduce, bucket));
    Instruction const wait = (*list)[static_cast<std::size_t>(place)];
    Instruction const sum = (*list)[static_cast<std::size_t>(place) + 1];
    REQUIRE(sum.act == Act::accumulate);
    list->erase(list->begin() + place, list->begin() + place + 2);
    auto const [next, head] = steps.find(rank, is(Act::backward, 5, 1));
    next->insert(next->begin() + head + 1, {wait, sum});
  }
  check_found(steps, StepDefect::written_while_used, "\"backward head, micro-batch 1\": bucket");
}

TEST_CASE("a gather that no part reads is found", "[parallel][program][defects]") {
  Steps steps(zero3, 2, 1);
  steps.repeat_everywhere(waits_for(Act::gather, 1));
  for (Rank rank = 0; rank < 2; ++rank) {
    auto const [list, place] = steps.find(rank, waits_for(Act::gather, 1));
    Instruction again = (*list)[static_cast<std::size_t>(place)];
    again.act = Act::gather;
    again.started = Act::wait;
    list->insert(list->begin() + place + 1, again);
  }
  check_found(steps, StepDefect::never_read, "no part has read the parameters of block 0");
}

TEST_CASE("a collective that a rank leaves out is found as another order", "[parallel][program][defects]") {
  Steps steps(ddp);
  steps.drop(2, is(Act::reduce, 0));
  steps.drop(2, waits_for(Act::reduce, 0));
  check_found(steps, StepDefect::other_order, "rank 2: \"reduce bucket 1");
}

TEST_CASE("the last collective of a rank left out lets the others wait for ever", "[parallel][program][defects]") {
  Steps steps(ddp);
  Index const last = steps.plans[0].reductions.buckets.buckets() - 1;
  steps.drop(2, is(Act::reduce, last));
  steps.drop(2, waits_for(Act::reduce, last));
  check_found(steps, StepDefect::waits_for_ever, "another rank never comes");
}

TEST_CASE("two collectives that a rank starts in the other order are found", "[parallel][program][defects]") {
  Steps steps(zero3);
  std::swap(steps.at(1, is(Act::gather), 0), steps.at(1, is(Act::gather), 1));
  check_found(steps, StepDefect::other_order, "rank 1: \"gather block 0 into slot 1\": rank 0 starts \"gather root");
}

TEST_CASE("a slot that is used again too early is found", "[parallel][program][defects]") {
  Steps steps(zero3, 2, 1);
  for (Rank rank = 0; rank < 2; ++rank) { // block 1 for forward goes where block 0 is
    auto const block1 = [](Instruction const& one) {
      bool const gathers = one.act == Act::gather || one.started == Act::gather, computes = one.act == Act::forward;
      return (gathers && one.subject == 2) || (computes && (one.subject == 3 || one.subject == 4));
    };
    for (int number = 0; number < 4; ++number) steps.at(rank, block1, number).slot = 1;
  }
  check_found(steps, StepDefect::never_read, "no part has read the parameters of block 0");
}

TEST_CASE("a gradient that is added twice is found by micro-batch", "[parallel][program][defects]") {
  Steps steps(zero2);
  steps.repeat_everywhere(is(Act::accumulate, 0, 1));
  check_found(steps, StepDefect::doubled_contribution, "has that of micro-batch 1 of all ranks twice");
}

TEST_CASE("a gradient that is not added is found by micro-batch", "[parallel][program][defects]") {
  Steps steps(zero2);
  steps.drop_everywhere(is(Act::accumulate, 0, 1));
  check_found(steps, StepDefect::missing_contribution,
              "the gradient of block 1 lacks that of micro-batch 1 of all ranks");
}

TEST_CASE("sums that do not meet across replicas are found", "[parallel][program][defects]") {
  Steps steps(hsdp);
  steps.drop_everywhere(is(Act::reduce_sums, 0));
  steps.drop_everywhere(waits_for(Act::reduce_sums, 0));
  check_found(steps, StepDefect::missing_contribution, "the gradient of block 1 ");
}

TEST_CASE("a micro-batch that is left out is found by its loss", "[parallel][program][defects]") {
  Steps steps(ddp);
  steps.drop_everywhere(is(Act::loss, Instruction::none, 1));
  check_found(steps, StepDefect::undefined_read, "\"backward head, micro-batch 1\"");
}

TEST_CASE("a dropped activation is found by its name", "[parallel][program][defects]") {
  Steps const right(ddp);
  struct Missing {
    Index part; ///< whose forward is left out
    char const* words;
  };
  for (auto const& [part, words] : {Missing{0, "\"forward attention 0, micro-batch 1\": activation \"embedded\""},
                                    Missing{1, "\"forward mlp 0, micro-batch 1\": activation \"block 0 middle\""},
                                    Missing{2, "\"forward attention 1, micro-batch 1\": activation \"block 0 output\""},
                                    Missing{4, "\"forward head, micro-batch 1\": activation \"block 1 output\""},
                                    Missing{5, "\"loss, micro-batch 1\": activation \"logits\""}}) {
    Steps steps = right;
    steps.drop_everywhere(is(Act::forward, part, 1));
    check_found(steps, StepDefect::undefined_read, words);
  }
}

TEST_CASE("activations that a forward overwrites before a backward reads them are found",
          "[parallel][program][defects]") {
  Steps const right(ddp);
  struct Overwritten {
    Index part; ///< its backward comes behind the forwards of the other micro-batch, up to part `last`
    Index last;
    char const* words;
  };
  for (auto const& [part, last, words] :
       {Overwritten{1, 0, "\"backward attention 0, micro-batch 0\": activation \"embedded\""},
        Overwritten{2, 1, "\"backward mlp 0, micro-batch 0\": activation \"block 0 middle\""},
        Overwritten{3, 2, "\"backward attention 1, micro-batch 0\": activation \"block 0 output\""}}) {
    Steps steps = right;
    for (Rank rank = 0; rank < 4; ++rank) {
      auto const [list, place] = steps.find(rank, is(Act::backward, part, 0));
      std::vector<Instruction> other;
      for (Index number = 0; number <= last; ++number)
        other.push_back({.act = Act::forward, .subject = number, .micro_batch = 1});
      list->insert(list->begin() + place, other.begin(), other.end());
    }
    check_found(steps, StepDefect::undefined_read, words);
  }
}

TEST_CASE("an activation that is read again after the backward of its part is found", "[parallel][program][defects]") {
  Steps steps(ddp);
  for (Rank rank = 0; rank < 4; ++rank) {
    auto const [list, place] = steps.find(rank, is(Act::backward, 1, 0));
    list->insert(list->begin() + place + 1, {.act = Act::forward, .subject = 2, .micro_batch = 0});
  }
  check_found(steps, StepDefect::undefined_read, "\"forward mlp 0, micro-batch 0\": activation \"block 0 middle\"");
}

TEST_CASE("parameters of an older version are found", "[parallel][program][defects]") {
  Steps steps(zero1);
  for (StepProgram& program : steps.programs) {
    std::erase_if(program.update.front().instructions, is(Act::publish, 0));
    for (std::vector<Segment>* part : {&program.step, &program.evaluation})
      for (Segment& segment : *part) std::erase_if(segment.instructions, waits_for(Act::publish, 0));
  }
  check_found(steps, StepDefect::old_parameters,
              "\"forward embed, micro-batch 0\": the parameters of root are those after 0");
}

TEST_CASE("a wait for what was not started is found", "[parallel][program][defects]") {
  Steps steps(zero1);
  for (StepProgram& program : steps.programs) std::erase_if(program.update.front().instructions, is(Act::publish, 0));
  check_found(steps, StepDefect::not_started, "wait for publish root");
}

TEST_CASE("a start without a wait is found", "[parallel][program][defects]") {
  Steps steps(ddp);
  steps.repeat_everywhere(is(Act::reduce, 0));
  check_found(steps, StepDefect::never_waited, "\"reduce bucket 0, micro-batch 1\": it was started before");
}

TEST_CASE("sums that are still being added up are found", "[parallel][program][defects]") {
  Steps steps(hsdp);
  Index const last = steps.plans[0].reductions.buckets.buckets() - 1;
  steps.drop_everywhere(waits_for(Act::reduce_sums, last));
  check_found(steps, StepDefect::undefined_read, "is still being reduced");
}

TEST_CASE("gradients that are overwritten while they are reduced are found", "[parallel][program][defects]") {
  Steps steps(zero2);
  steps.drop_everywhere(waits_for(Act::reduce, 0));
  check_found(steps, StepDefect::written_while_used, "bucket");
}

TEST_CASE("a slice that is reduced before its piece of backward is found", "[parallel][program][defects]") {
  Steps steps(in_slices, 4, 1);
  for (Rank rank = 0; rank < 4; ++rank) { // bucket 1 starts one piece too early
    auto const [list, start] = steps.find(rank, is(Act::reduce, 1));
    Instruction const reduce = (*list)[static_cast<std::size_t>(start)];
    list->erase(list->begin() + start);
    auto const [same, place] = steps.find(rank, is(Act::backward, 4), 1);
    same->insert(same->begin() + place, reduce);
  }
  check_found(steps, StepDefect::written_while_used,
              "\"backward mlp 1, piece 1, micro-batch 0\": bucket 1 is still being reduced");
}

TEST_CASE("a piece of backward that is left out, or in another order, is found", "[parallel][program][defects]") {
  Steps const right(in_slices, 4, 1);
  Steps steps = right;
  steps.drop_everywhere(is(Act::backward, 4), 1);
  check_found(steps, StepDefect::undefined_read, "\"backward mlp 1, piece 2, micro-batch 0\": piece 1 comes next");
  steps = right;
  for (Rank rank = 0; rank < 4; ++rank)
    std::swap(steps.at(rank, is(Act::backward, 4), 0), steps.at(rank, is(Act::backward, 4), 1));
  check_found(steps, StepDefect::undefined_read, "\"backward mlp 1, piece 1, micro-batch 0\": piece 0 comes next");
  steps = right;
  steps.at(0, is(Act::backward, 4)).piece = 3;
  check_found(steps, StepDefect::malformed, "piece 3 of 3 does not exist");
}

TEST_CASE("an update while parameters are on their way is found", "[parallel][program][defects]") {
  Steps steps(zero1);
  for (StepProgram& program : steps.programs)
    for (Segment& segment : program.step) std::erase_if(segment.instructions, waits_for(Act::publish, 2));
  check_found(steps, StepDefect::undefined_read, "the parameters of block 1 are still on their way");
}

TEST_CASE("collectives whose order timing decides are found", "[parallel][program][defects]") {
  ParallelConfig one_at_a_time = zero1;
  one_at_a_time.in_flight = 1;
  Steps steps(one_at_a_time, 2, 1);
  for (Rank rank = 0; rank < 2; ++rank) { // while a reduction waits for scratch
    auto const [list, place] = steps.find(rank, is(Act::reduce), 1);
    list->insert(list->begin() + place + 1, {.act = Act::gather, .subject = 0, .slot = 0});
  }
  check_found(steps, StepDefect::order_by_timing, "\"gather root into slot 0\"");
}

TEST_CASE("scratch of sums that is used again too early is found", "[parallel][program][defects]") {
  ParallelConfig three_buckets = hsdp;
  three_buckets.bucket_bytes = three_buckets.first_bucket_bytes = 4096;
  Steps steps(three_buckets, 4, 1);
  REQUIRE(steps.plans[0].reductions.buckets.runs[0].buckets > 2);
  for (Rank rank = 0; rank < 4; ++rank) { // the wait for the sums of bucket 0 comes behind the start of bucket 2
    auto const [list, place] = steps.find(rank, waits_for(Act::reduce_sums, 0));
    Instruction const wait = (*list)[static_cast<std::size_t>(place)];
    list->erase(list->begin() + place);
    auto const [same, start] = steps.find(rank, is(Act::reduce, 2));
    same->insert(same->begin() + start + 1, wait);
  }
  check_found(steps, StepDefect::written_while_used, "\"reduce bucket 2, micro-batch 0\": \"reduce sums of bucket 0");
}

TEST_CASE("scratch of publications that is used again too early is found", "[parallel][program][defects]") {
  Steps steps(zero1);
  for (StepProgram& program : steps.programs)
    program.update.front().instructions.push_back({.act = Act::publish, .subject = 2, .slot = 0});
  check_found(steps, StepDefect::written_while_used, "\"publish block 1\": \"publish root\" uses its scratch");
}

TEST_CASE("a program that lacks a part or an act is found", "[parallel][program][defects]") {
  Steps const right(ddp);
  Steps steps = right;
  steps.programs.assign(steps.programs.size(), {});
  check_found(steps, StepDefect::incomplete, "have no instruction");
  for (Act const act : {Act::agree, Act::norm}) {
    steps = right;
    steps.drop_everywhere(is(act));
    if (act == Act::norm)
      check_found(steps, StepDefect::incomplete, "\"norm\" was done 0 times");
    else
      check_found(steps, StepDefect::incomplete, "\"agree on losses\" was done 0 times");
  }
  steps = right;
  for (StepProgram& program : steps.programs) std::erase_if(program.evaluation.front().instructions, is(Act::loss));
  check_found(steps, StepDefect::incomplete, "\"loss\" was done 0 times");
  steps = right;
  for (StepProgram& program : steps.programs) program.update.clear();
  check_found(steps, StepDefect::incomplete, "have no instruction");
}

TEST_CASE("an instruction that names what does not exist is found", "[parallel][program][defects]") {
  Steps const right(zero3);
  Steps steps = right;
  steps.at(3, is(Act::forward, 1)).subject = 9;
  check_found(steps, StepDefect::malformed, "rank 3: \"forward part 9, micro-batch 0\": part 9 of 6 does not exist");
  steps = right;
  steps.at(3, is(Act::gather, 1)).slot = 2;
  check_found(steps, StepDefect::malformed, "slot 2 of 2 does not exist");
  steps = right;
  steps.at(3, is(Act::loss)).micro_batch = 2;
  check_found(steps, StepDefect::malformed, "micro-batch 2 of 2 does not exist");
}
