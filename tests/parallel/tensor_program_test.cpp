// What tensor ranks bring together between the pieces of a part: how often, that the proof accepts it, and that the
// proof finds every way to break it.

#include "parallel/plan/parallel_problems.hpp"
#include "support/broken_steps.hpp"

#include <catch2/generators/catch_generators.hpp>

#include <algorithm>
#include <map>

using namespace trainstone;
using namespace trainstone::test;

namespace {

struct TensorCase {
  ParallelConfig parallel = {};
  Rank ranks = 4;
  Index micro_batches = 2;
  GptOptions options = {};
};

std::vector<ShardPlan> plans_of(TensorCase const& one) {
  GptConfig const model{.layers = 3, .heads = 8, .channels = 16, .context = 8, .vocab = 100};
  Mesh const mesh = mesh_of(one.parallel, one.ranks);
  std::vector<ShardPlan> plans;
  for (Rank rank = 0; rank < one.ranks; ++rank) {
    GptOptions options = one.options;
    options.slices = {one.parallel.slices(), mesh.tensor, mesh.index(Axis::tensor, rank)};
    options.sequence_parallel = one.parallel.sequence;
    options.keep_gathered = one.parallel.tensor_keep_gathered;
    options.row_chunks = one.parallel.tensor_row_chunks;
    ParameterTable const table(model, mesh.data(), options.slices);
    plans.push_back(make_shard_plan(one.parallel, {}, {}, {}, table, Topology::one_node(one.ranks), rank,
                                    one.micro_batches, options, {{2, 8}, 16}));
  }
  return plans;
}

Steps steps_of(TensorCase const& one) { return Steps(plans_of(one)); }

/// How often a program starts each exchange.
std::map<SliceExchange, Index> exchanges_of(std::vector<Segment> const& segments) {
  std::map<SliceExchange, Index> counts;
  for_each_instruction(segments, [&](Instruction const& one) {
    if (one.act == Act::exchange) ++counts[exchange_of(one)];
  });
  return counts;
}

ParallelConfig with_tensor(ParallelConfig parallel, Index tensor) {
  parallel.tensor = tensor;
  return parallel;
}

ParallelConfig with_positions(ParallelConfig parallel, Index tensor, bool keeps) {
  parallel.tensor = tensor;
  parallel.sequence = true;
  parallel.tensor_keep_gathered = keeps;
  return parallel;
}

Steps::Same exchange(SliceExchange what) { return is(Act::exchange, static_cast<Index>(what), 1); }
Steps::Same wait_for(SliceExchange what) { return waits_for(Act::exchange, static_cast<Index>(what)); }

} // namespace

TEST_CASE("tensor ranks add up 4 L + 2 times per micro-batch, and twice for the loss", "[parallel][program][tensor]") {
  using enum SliceExchange;
  Index const layers = 3, micro_batches = 2;
  for (ParallelConfig const& parallel : {ddp, zero1, zero2, zero3, in_slices}) {
    auto const programs = [&](GptOptions const& options) {
      return steps_of({with_tensor(parallel, 2), 4, micro_batches, options}).programs.front();
    };
    StepProgram const usual = programs({});
    CHECK(exchanges_of(usual.step) ==
          std::map<SliceExchange, Index>{{sum, micro_batches * (4 * layers + 2)}, {loss_maximum, 2}, {loss_sums, 2}});
    CHECK(exchanges_of(usual.evaluation) ==
          std::map<SliceExchange, Index>{{sum, 2 * layers + 1}, {loss_maximum, 1}, {loss_sums, 1}});
    // the last block finds what it has left; the last product of a block is not made again
    CHECK(exchanges_of(programs({.recompute = {Recompute::full}}).step)[sum] ==
          micro_batches * (4 * layers + 2 + layers - 1));
    CHECK(exchanges_of(programs({.recompute = {Recompute::selective}}).step)[sum] == micro_batches * (4 * layers + 2));
    // a part of the rows at a time: the gradient of head's input is one sum
    CHECK(exchanges_of(programs({.loss_chunks = 4}).step) ==
          std::map<SliceExchange, Index>{{sum, micro_batches * (4 * layers + 2)}, {loss_maximum, 8}, {loss_sums, 8}});
  }
}

TEST_CASE("tensor ranks that share positions gather and add up ten times per block, eight times if they keep rows",
          "[parallel][program][tensor]") {
  using enum SliceExchange;
  Index const layers = 3, micro_batches = 2;
  bool const keeps = GENERATE(false, true);
  for (ParallelConfig const& parallel : {ddp, zero1, zero2, zero3, in_slices}) {
    auto const programs = [&](GptOptions const& options) {
      return steps_of({with_positions(parallel, 2, keeps), 4, micro_batches, options}).programs.front();
    };
    std::map<SliceExchange, Index> counts = exchanges_of(programs({}).step);
    // a block: 2 sums forward, 2 backward; 2 gathers forward, 2 backward, and norms again. Embed: a sum and a gather.
    // Head: a gather and a sum.
    CHECK(counts[sum] == micro_batches * (4 * layers + 2));
    CHECK(counts[gather] == micro_batches * (4 * layers + 2));
    CHECK(counts[gather_again] == (keeps ? 0 : micro_batches * 2 * layers));
    CHECK(counts[norm_sums] == micro_batches * (2 * layers + 1));
    CHECK(exchanges_of(programs({}).evaluation) ==
          std::map<SliceExchange, Index>{
              {sum, 2 * layers + 1}, {loss_maximum, 1}, {loss_sums, 1}, {gather, 2 * layers + 1}});
    // 2 gathers and a sum more of all blocks but the last one
    std::map<SliceExchange, Index> again = exchanges_of(programs({.recompute = {Recompute::full}}).step);
    CHECK(again[gather] == counts[gather] + micro_batches * 2 * (layers - 1));
    CHECK(again[sum] == counts[sum] + micro_batches * (layers - 1));
    std::map<SliceExchange, Index> const in_chunks = exchanges_of(programs({.loss_chunks = 4}).step);
    CHECK(in_chunks.at(gather) == counts[gather]);
    CHECK(in_chunks.at(sum) == counts[sum]);
  }
}

TEST_CASE("sums in chunks of rows start chunk by chunk, and the next chunk is computed meanwhile",
          "[parallel][program][tensor]") {
  using enum SliceExchange;
  Index const layers = 3, micro_batches = 2, chunks = 2;
  ParallelConfig parallel = with_tensor(zero1, 2);
  parallel.tensor_row_chunks = chunks;
  bool const shares = GENERATE(false, true);
  parallel.sequence = shares;
  for (GptOptions const& options : {GptOptions{}, GptOptions{.recompute = {Recompute::full}, .loss_chunks = 4}}) {
    Index const again = options.recompute.empty() ? 0 : layers - 1;
    std::map<SliceExchange, Index> const counts =
        exchanges_of(steps_of({parallel, 4, micro_batches, options}).programs.front().step);
    CHECK(counts.at(sum) == micro_batches * chunks * (4 * layers + 2 + again));
  }
  std::vector<ShardPlan> const plans = plans_of({with_tensor(parallel, 4), 4, 1});
  std::vector<std::string> words;
  bool of_part = false;
  for_each_instruction(make_step_program(plans.front()).step, [&](Instruction const& one) {
    if (computes(one.act)) of_part = one.act == Act::forward && one.subject == 2; // mlp 0
    if (of_part) words.push_back(to_string(one, plans.front()));
  });
  std::vector<std::string> expected{"forward mlp 0, piece 0, micro-batch 0"};
  if (shares)
    expected.insert(expected.end(), {"exchange rows, micro-batch 0", "wait for exchange rows, micro-batch 0",
                                     "forward mlp 0, piece 1, micro-batch 0"});
  std::vector<std::string> const pieces =
      shares ? std::vector<std::string>{"2", "3", "4"} : std::vector<std::string>{"1", "2", "3"};
  expected.insert(expected.end(), {"forward mlp 0, piece " + pieces[0] + ", micro-batch 0",
                                   "exchange sum over slices, rows 0, micro-batch 0",
                                   "forward mlp 0, piece " + pieces[1] + ", micro-batch 0",
                                   "exchange sum over slices, rows 1, micro-batch 0",
                                   "wait for exchange sum over slices, rows 0, micro-batch 0",
                                   "wait for exchange sum over slices, rows 1, micro-batch 0",
                                   "forward mlp 0, piece " + pieces[2] + ", micro-batch 0"});
  CHECK(words == expected);
}

TEST_CASE("a chunk of rows that is not brought together is found", "[parallel][program][defects][tensor]") {
  ParallelConfig parallel = with_tensor(ddp, 4);
  parallel.tensor_row_chunks = 2;
  auto const of_chunk = [](Act act) {
    return [=](Instruction const& one) {
      return one.act == act && (act == Act::exchange || one.started == Act::exchange) && one.micro_batch == 1 &&
             one.subject == static_cast<Index>(SliceExchange::sum) && one.slot == 1;
    };
  };
  Steps early = steps_of({parallel});
  early.drop_everywhere(of_chunk(Act::wait));
  check_found(early, StepDefect::undefined_read, "the sum over slices over all tensor ranks is not there");
  Steps malformed = steps_of({parallel});
  auto const [list, place] = malformed.find(0, of_chunk(Act::exchange));
  (*list)[static_cast<std::size_t>(place)].slot = 2;
  check_found(malformed, StepDefect::malformed, "chunk of rows 2 of 2 does not exist");
}

TEST_CASE("programs of tensor ranks are proved for every strategy", "[parallel][program][tensor]") {
  Index const tensor = GENERATE(2, 4, 8), slices = GENERATE(0, 8);
  bool const overlap = GENERATE(true, false);
  GptOptions const options =
      GENERATE(GptOptions{}, GptOptions{.recompute = {Recompute::full}},
               GptOptions{.dropout = 0.1, .recompute = {Recompute::selective}, .loss_chunks = 2});
  bool const shares = GENERATE(false, true), keeps = GENERATE(false, true);
  if (keeps && !shares) return;
  for (ParallelConfig parallel : {ddp, in_slices, zero1, zero2, zero3, hsdp, ordered}) {
    if (shares) parallel = with_positions(parallel, tensor, keeps);
    parallel.tensor = tensor;
    parallel.tensor_blocks = slices;
    parallel.tensor_row_chunks = overlap ? 2 : 1;
    parallel.overlap = overlap;
    TensorCase const one{parallel, 8, 4, options};
    if (find_parallel_problem(parallel, {}, mesh_of(parallel, 8).data(), 4)) continue;
    CHECK_NOTHROW(steps_of(one));
  }
}

TEST_CASE("behind the product for the gradient of an input the sum starts, and gradients of weights come meanwhile",
          "[parallel][program][tensor]") {
  auto const words = [](bool overlap) {
    ParallelConfig parallel = with_tensor({}, 4);
    parallel.overlap = overlap;
    std::vector<ShardPlan> const plans = plans_of({parallel, 4, 1});
    std::vector<std::string> found;
    bool of_block = false;
    for_each_instruction(make_step_program(plans.front()).step, [&](Instruction const& one) {
      if (computes(one.act)) of_block = one.act == Act::backward && one.subject == 2; // mlp 0
      if (of_block) found.push_back(to_string(one, plans.front()));
    });
    return found;
  };
  CHECK(words(true) ==
        std::vector<std::string>{"backward mlp 0, piece 0, micro-batch 0", "backward mlp 0, piece 1, micro-batch 0",
                                 "exchange sum over slices, micro-batch 0", "backward mlp 0, piece 2, micro-batch 0",
                                 "wait for exchange sum over slices, micro-batch 0",
                                 "backward mlp 0, piece 3, micro-batch 0"});
  CHECK(words(false)[3] == "wait for exchange sum over slices, micro-batch 0");
}

TEST_CASE("a sum over slices that is not brought together, too early or twice, is found",
          "[parallel][program][defects][tensor]") {
  using enum SliceExchange;
  TensorCase const one{with_tensor(zero1, 2)};
  Steps own = steps_of(one); // its own part taken for the sum
  own.drop_everywhere(exchange(sum));
  own.drop_everywhere([](Instruction const& wait) {
    return wait.act == Act::wait && wait.started == Act::exchange && wait.micro_batch == 1 &&
           wait.subject == static_cast<Index>(sum);
  });
  check_found(own, StepDefect::undefined_read, "the sum over slices over all tensor ranks is not there");

  Steps early = steps_of(one); // before it has come
  early.drop_everywhere(wait_for(loss_sums));
  check_found(early, StepDefect::undefined_read, "the sums of logits over all tensor ranks is not there");

  Steps twice = steps_of(one);
  for (Rank rank = 0; rank < 4; ++rank) {
    auto const [list, place] = twice.find(rank, exchange(loss_maximum));
    Instruction const again = (*list)[static_cast<std::size_t>(place)],
                      wait = (*list)[static_cast<std::size_t>(place + 1)];
    REQUIRE(wait.act == Act::wait);
    list->insert(list->begin() + place + 2, {again, wait});
  }
  check_found(twice, StepDefect::doubled_contribution, "exchange maximum of logits");

  Steps other = steps_of(one); // one rank's order is another one
  auto const [list, place] = other.find(1, exchange(loss_maximum));
  (*list)[static_cast<std::size_t>(place)].subject = static_cast<Index>(loss_sums);
  check_found(other, StepDefect::undefined_read, "this rank's part of it is not there");

  Steps missing = steps_of(one); // one rank alone leaves it out
  missing.drop(3, exchange(sum));
  check_found(missing, StepDefect::not_started, "wait for exchange sum over slices");
}

TEST_CASE("rows that are not gathered, or that nobody waits for, are found", "[parallel][program][defects][tensor]") {
  using enum SliceExchange;
  TensorCase const one{with_positions(zero1, 2, false)};
  for (SliceExchange const what : {gather, gather_again, norm_sums}) {
    Steps early = steps_of(one);
    early.drop_everywhere(wait_for(what));
    check_found(early, StepDefect::undefined_read,
                "the " + std::string(to_string(what)) + " over all tensor ranks is not there");
    Steps missing = steps_of(one); // one rank alone leaves it out
    missing.drop(3, exchange(what));
    bool const has_other_next = what == gather_again; // the next one in place of it
    check_found(missing, has_other_next ? StepDefect::other_order : StepDefect::not_started,
                has_other_next ? "starts \"exchange rows again" : "wait for exchange " + std::string(to_string(what)));
  }
}

TEST_CASE("pieces of a pass that are left out or swapped are found", "[parallel][program][defects][tensor]") {
  TensorCase const one{with_tensor(ddp, 4)};
  auto const piece = [](Act act, Index part, Index number) {
    return [=](Instruction const& other) {
      return other.act == act && (act == Act::loss || other.subject == part) && other.piece == number;
    };
  };
  Steps forward = steps_of(one);
  forward.drop_everywhere(piece(Act::forward, 1, 0));
  check_found(forward, StepDefect::undefined_read, "exchange sum over slices, micro-batch 0\": this rank's part of it");
  Steps open = steps_of(one);
  open.drop_everywhere(piece(Act::forward, 2, 1));
  check_found(open, StepDefect::undefined_read, "piece 1 of \"forward mlp 0, piece 0, micro-batch 0\" comes next");
  Steps loss = steps_of(one);
  loss.drop_everywhere(piece(Act::loss, 0, 2));
  check_found(
      loss, StepDefect::written_while_used,
      "\"loss, piece 1, micro-batch 1\": the sums of logits of \"loss, piece 1, micro-batch 0\" is still needed");
  Steps backward = steps_of(one);
  backward.drop_everywhere(piece(Act::backward, 1, 2));
  check_found(backward, StepDefect::undefined_read,
              "\"backward attention 0, piece 3, micro-batch 0\": piece 2 comes next");
}
