// Each way of breaking a step program is found by its name, and the message says where. Here collectives, parameters
// and the form of programs; gradients and activations are in step_data_defects_test.cpp.

#include "support/broken_steps.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>

using namespace trainstone;
using namespace trainstone::test;

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
