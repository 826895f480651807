// Each way of breaking what a step program does with gradients and activations is found by its name, and the message
// says where.

#include "support/broken_steps.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>

using namespace trainstone;
using namespace trainstone::test;

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

TEST_CASE("a chunk of the loss that overwrites logits, or that is left out, is found", "[parallel][program][defects]") {
  GptOptions const chunks{.loss_chunks = 4};
  auto const chunk = [](Act act, Index piece) {
    return [=](Instruction const& one) { return one.act == act && one.piece == piece && one.micro_batch == 1; };
  };
  Steps swapped(zero3, 2, 2, chunks); // the next chunk's loss before this chunk's backward
  for (Rank rank = 0; rank < 2; ++rank)
    std::swap(swapped.at(rank, chunk(Act::backward, 1)), swapped.at(rank, chunk(Act::loss, 2)));
  check_found(swapped, StepDefect::undefined_read,
              "\"backward head, piece 1, micro-batch 1\": activation \"logits\" of the micro-batch is not there");
  Steps without(ddp, 2, 2, chunks);
  without.drop_everywhere(chunk(Act::loss, 2));
  check_found(without, StepDefect::undefined_read, "\"backward head, piece 2, micro-batch 1\": activation \"logits\"");
  Steps lost(ddp, 2, 2, chunks);
  lost.drop_everywhere(chunk(Act::backward, 2));
  check_found(lost, StepDefect::undefined_read, "\"backward head, piece 3, micro-batch 1\": piece 2 comes next");
  Steps early(ddp, 2, 2, chunks);
  for (Rank rank = 0; rank < 2; ++rank) early.at(rank, chunk(Act::loss, 3)).piece = 0;
  check_found(early, StepDefect::undefined_read, "\"loss, piece 0, micro-batch 1\": piece 3 comes next");
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
