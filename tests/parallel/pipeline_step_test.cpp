// The step programs of pipelines: proved for every schedule, strategy and cut; they send what the closed forms say; and
// mistakes in them are found.

#include "parallel/program/step_counts.hpp"
#include "parallel/program/step_simulator.hpp"
#include "support/broken_steps.hpp"
#include "support/pipeline_steps.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

using namespace trainstone;
using namespace trainstone::test;

namespace {

/// \return 1 if the programs are proved, 0 if there is no such run
int check_proved(PipelineCase const& one) {
  if (!one.is_legal()) return 0;
  std::vector<ShardPlan> const plans = plans_of(one);
  std::optional<StepFinding> const found = find_step_defect(plans, programs_of(plans));
  if (!found) return 1;
  FAIL(to_string(one) << ": " << trainstone::to_string(found->defect) << ": " << found->message);
  return 0;
}

std::vector<ParallelConfig> strategies_on(Index data_ranks) {
  std::vector<ParallelConfig> all{{}};
  for (Index stage = 1; stage <= 3; ++stage) all.push_back({.strategy = Strategy::zero, .zero_stage = stage});
  if (data_ranks == 4) all.push_back({.strategy = Strategy::hsdp, .shard_group = 2});
  return all;
}

std::vector<ParallelConfig> schedules_on(ParallelConfig config, Index stages) {
  std::vector<ParallelConfig> all;
  config.pipeline = stages;
  for (char const* const schedule : {"naive", "gpipe", "1f1b", "1f1b-eager", "interleaved"}) {
    config.pipeline_schedule = schedule;
    config.pipeline_chunks = 1;
    all.push_back(config);
  }
  config.pipeline_chunks = 2;
  all.push_back(config);
  return all;
}

} // namespace

TEST_CASE("programs of pipelines are proved for every strategy and schedule", "[parallel][program][pipeline]") {
  Index const stages = GENERATE(2, 3, 4), data_ranks = GENERATE(1, 2, 4);
  int proved = 0;
  for (ParallelConfig const& strategy : strategies_on(data_ranks))
    for (ParallelConfig const& parallel : schedules_on(strategy, stages))
      for (Index const micro_batches : {1, 2, 4, 5}) {
        PipelineCase one{parallel, data_ranks, micro_batches, stages == 4 ? 8 : 6};
        one.parallel.unit = 1 + proved % 3;
        one.parallel.overlap = micro_batches % 2 == 0;
        one.parallel.bucket_bytes = one.parallel.first_bucket_bytes = micro_batches > 2 ? 1e9 : 1024;
        proved += check_proved(one);
        one.parallel.reduction = ReductionMode::ordered;
        one.parallel.prefetch = micro_batches % 3;
        if (micro_batches > 1) one.options = {.recompute = {Recompute::full}, .loss_chunks = 2};
        proved += check_proved(one);
      }
  // Four schedules take all four numbers of micro-batches. Interleaved ones take multiples of the stages, and two
  // chunks only on 4 stages. Ordered mode takes powers of two.
  int const fast = 16 + (stages == 2 ? 2 : stages == 4 ? 2 : 0), ordered = stages == 3 ? 0 : fast - 4;
  CHECK(proved == static_cast<int>(std::ssize(strategies_on(data_ranks))) * (fast + ordered));
}

TEST_CASE("programs are proved for stages that have embedding or head alone", "[parallel][program][pipeline]") {
  for (std::vector<std::int64_t> const& stages :
       std::vector<std::vector<std::int64_t>>{{2, 1, 1, 0}, {0, 2, 2, 0}, {1, 3}, {0, 4, 0}, {4, 0}, {0, 4}})
    for (ParallelConfig parallel : strategies_on(2)) {
      parallel.pipeline = std::ssize(stages);
      parallel.stage_cut = StageCut::listed;
      parallel.stages = stages;
      CHECK(check_proved({parallel, 2, 4, 4}) == 1);
      parallel.reduce = ReduceWhen::each;
      CHECK(check_proved({parallel, 2, 4, 4}) == 1);
    }
}

TEST_CASE("stages send as many messages as closed forms say", "[parallel][program][pipeline]") {
  Index const stages = GENERATE(2, 3, 4, 8), micro_batches = GENERATE(1, 4, 8);
  for (ParallelConfig const& parallel : schedules_on({}, stages)) {
    PipelineCase const one{parallel, 1, micro_batches, 2 * stages};
    if (!one.is_legal()) continue;
    CAPTURE(to_string(one));
    Index const chunks = parallel.pipeline_chunks;
    std::uint64_t all = 0;
    for (ShardPlan const& plan : plans_of(one)) {
      std::uint64_t activations = 0, gradients = 0, elements = 0;
      for (RepeatedCollective const& row : collectives_of(make_step_outline(plan).step, plan)) {
        std::string const what(row.what);
        if (what == "activations") activations += row.times;
        if (what == "gradients of activations") gradients += row.times;
        if (row.planned.problem.collective == Collective::broadcast) {
          elements = static_cast<std::uint64_t>(row.planned.problem.elements());
          CHECK(elements == 24);
        }
      }
      bool const first = plan.pipeline.stage == 0, last = plan.pipeline.stage + 1 == stages;
      CHECK(activations == static_cast<std::uint64_t>(micro_batches * (chunks - (last ? 1 : 0))));
      CHECK(gradients == static_cast<std::uint64_t>(micro_batches * (chunks - (first ? 1 : 0))));
      all += activations + gradients;
    }
    CHECK(all == static_cast<std::uint64_t>(2 * micro_batches * (stages * chunks - 1)));
  }
}

namespace {

/// Gathers per step of the units of a stage.
struct Gathers {
  Index root = 0, blocks = 0; ///< of all blocks
};

/// Neighbouring uses of a unit are one gather: counted from the order of a stage, whose chunks have equal blocks.
Gathers count_gathers(PipelineShape const& shape, Index stage, StageOrder const& order, Index blocks) {
  constexpr Index root = -1;
  std::vector<Index> uses;
  for (auto const& [act, micro_batch, chunk] : order) {
    bool const forward = act == ChunkAct::forward;
    if (forward && shape.is_first(stage, chunk)) uses.push_back(root); // embed; its backward reads no parameters
    for (Index i = 0; i < blocks; ++i) uses.push_back(chunk * blocks + (forward ? i : blocks - 1 - i));
    if (forward && shape.is_last(stage, chunk)) uses.push_back(root); // head, loss and the head's backward
  }
  uses.erase(std::unique(uses.begin(), uses.end()), uses.end());
  Index const of_root = std::ranges::count(uses, root);
  return {of_root, std::ssize(uses) - of_root};
}

/// Of a stage with sharded parameters. The groups have less than 512 elements, which is what they are padded to on two
/// data ranks; root has two of them on the first and on the last stage.
Gathers planned_gathers(ShardPlan const& plan) {
  Gathers gathers;
  for (RepeatedCollective const& row : collectives_of(make_step_outline(plan).step, plan)) {
    if (std::string(row.what) != "parameters") continue;
    Index const elements = row.planned.problem.elements(), times = static_cast<Index>(row.times);
    CHECK((elements == 512 || elements == 1024));
    (elements == 512 ? gathers.blocks : gathers.root) += times;
  }
  return gathers;
}

} // namespace

TEST_CASE("stages gather a unit once for all its neighbouring uses", "[parallel][program][pipeline]") {
  Index const p = GENERATE(2, 3, 4), m = GENERATE(1, 4, 8), blocks = GENERATE(1, 2, 3);
  for (ParallelConfig const& parallel : schedules_on({.strategy = Strategy::zero, .zero_stage = 3}, p)) {
    PipelineShape const shape{p, m, parallel.pipeline_chunks};
    PipelineCase const one{parallel, 2, m, blocks * shape.virtual_stages()};
    if (!one.is_legal()) continue;
    std::vector<StageOrder> const orders =
        make_pipeline_order(parse_pipeline_schedule(parallel.pipeline_schedule), shape);
    for (ShardPlan const& plan : plans_of(one)) {
      Index const i = plan.pipeline.stage, behind = p - 1 - i;
      CAPTURE(to_string(one), i);
      bool const first = i == 0, last = behind == 0;
      Gathers const planned = planned_gathers(plan);
      Gathers const counted = count_gathers(shape, i, orders[static_cast<std::size_t>(i)], blocks);
      CHECK(planned.root == (first || last ? m : 0));
      CHECK(planned.root == counted.root);
      CHECK(planned.blocks == counted.blocks);
      // Closed forms for several blocks. A backward after a forward uses the last block again, where no head lies
      // between; a forward after a backward uses the first block again, where no embed lies between.
      if (blocks == 1) continue;
      if (parallel.pipeline_schedule == "gpipe") CHECK(planned.blocks == 2 * m * blocks - (last ? 0 : 1));
      if (parallel.pipeline_schedule == "1f1b") {
        Index const pairs = m - std::min(m, behind); // after the warm-up
        Index const turns = std::max<Index>(pairs, 1), returns = std::max<Index>(pairs - 1, 0);
        CHECK(planned.blocks == 2 * m * blocks - (last ? 0 : turns) - (first ? 0 : returns));
      }
    }
  }
}

TEST_CASE("two stages of two blocks gather as written down here", "[parallel][program][pipeline]") {
  std::vector<ShardPlan> const plans =
      plans_of({{.strategy = Strategy::zero, .zero_stage = 3, .pipeline = 2}, 2, 4, 4});
  Gathers const first = planned_gathers(plans.front()), last = planned_gathers(plans.back());
  CHECK(first.root == 4); // R 0 1, R 0 1 0, R 0 1 0, R 0 1 0, 1 0: forward 0, then forward 1 with backward 0, ...
  CHECK(first.blocks == 2 + 3 * 3 + 2);
  CHECK(last.root == 4); // 2 3 R 3 2 3 R 3 2 3 R 3 2 3 R 3 2
  CHECK(last.blocks == 4 * 3 + 1);
}

namespace {

Steps::Same is(Act act, MessageKind kind) { return test::is(act, static_cast<Index>(kind)); }
Steps::Same waits_for(Act act, MessageKind kind) { return test::waits_for(act, static_cast<Index>(kind)); }

constexpr MessageKind activation = MessageKind::activation, gradient = MessageKind::gradient;

} // namespace

TEST_CASE("mistakes in the messages of a pipeline's step are found", "[parallel][program][pipeline]") {
  Steps broken(plans_of({{.pipeline = 2}, 1, 4, 2}));
  SECTION("nothing is wrong before") { CHECK_FALSE(find_step_defect(broken.plans, broken.programs)); }
  SECTION("a send is lost") {
    broken.drop(0, is(Act::send, activation), 3);
    check_found(broken, StepDefect::waits_for_ever, "micro-batch 3");
  }
  SECTION("a wait is for what was not started") {
    broken.drop(0, is(Act::receive, gradient), 3);
    check_found(broken, StepDefect::not_started, "wait for receive gradient");
  }
  SECTION("nobody waits for a receive") {
    broken.drop(1, waits_for(Act::receive, activation));
    check_found(broken, StepDefect::undefined_read, "activation \"input\"");
  }
  SECTION("a receive meets another micro-batch") {
    std::swap(broken.at(1, is(Act::receive, activation), 0).micro_batch,
              broken.at(1, is(Act::receive, activation), 1).micro_batch);
    check_found(broken, StepDefect::other_order, "activation");
  }
  SECTION("an input is used again too early") {
    broken.at(1, is(Act::receive, activation), 1).buffers.input =
        broken.at(1, is(Act::receive, activation), 0).buffers.input;
    check_found(broken, StepDefect::undefined_read, "activation \"input\"");
  }
  SECTION("a slot is used one instruction early") {
    Index const parts = 3; // of stage 0: embed and a block
    for (int part = 0; part < parts; ++part)
      broken.at(0, is(Act::forward, Instruction::none, 1), part).buffers.slot = 0;
    check_found(broken, StepDefect::written_while_used, "slot 0");
  }
  SECTION("a gradient is sent before it is there") {
    auto const [list, sent] = broken.find(1, is(Act::send, gradient));
    std::rotate(list->begin() + sent - 1, list->begin() + sent, list->begin() + sent + 1);
    check_found(broken, StepDefect::undefined_read, "gradient of the chunk's input");
  }
  SECTION("a backward does not wait for its gradient") {
    broken.drop(0, waits_for(Act::receive, gradient));
    check_found(broken, StepDefect::undefined_read, "gradient of its output");
  }
  SECTION("a micro-batch is left out") {
    for (int part = 0; part < 3; ++part) broken.drop(0, is(Act::backward, Instruction::none, 2));
    check_found(broken, StepDefect::missing_contribution, "micro-batch 2");
  }
  SECTION("a stage does not add the other part of the table") {
    broken.drop(1, is(Act::tie));
    check_found(broken, StepDefect::waits_for_ever, "tie");
  }
  SECTION("no stage does") {
    for (Rank const rank : {0, 1}) broken.drop(rank, is(Act::tie));
    check_found(broken, StepDefect::undefined_read, "token table");
  }
}
