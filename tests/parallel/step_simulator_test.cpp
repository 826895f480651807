// The programs of all strategies are proved, whatever the number of ranks and micro-batches, and however far they
// gather ahead or overlap.

#include "parallel/plan/parallel_problems.hpp"
#include "parallel/plan/strategies.hpp"
#include "parallel/program/step_programs.hpp"
#include "parallel/program/step_simulator.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>

#include <set>
#include <string>
#include <vector>

using namespace trainstone;

namespace {

struct Case {
  ParallelConfig parallel;
  Rank ranks;
  Index micro_batches;
  Index layers;
  Index channels = 4; ///< with 16, buckets are slices of a block
  std::vector<Recompute> recompute = {};
  Index loss_chunks = 1;
};

std::vector<ShardPlan> plans_of(Case const& one) {
  GptConfig const model{.layers = one.layers, .heads = 1, .channels = one.channels, .context = 4, .vocab = 16};
  ParameterTable const table(model, mesh_of(one.parallel, one.ranks).parts(), {}, one.parallel.unit);
  Topology const topology = Topology::one_node(one.ranks);
  std::vector<ShardPlan> plans;
  for (Rank rank = 0; rank < one.ranks; ++rank)
    plans.push_back(make_shard_plan(one.parallel, {}, {}, {}, table, topology, rank, one.micro_batches,
                                    {.recompute = one.recompute, .loss_chunks = one.loss_chunks}));
  return plans;
}

/// \return the number of sets of programs that were proved: none if there is no such run
int check_proved(Case const& one) {
  if (find_parallel_problem(one.parallel, {}, mesh_of(one.parallel, one.ranks).data(), one.micro_batches)) return 0;
  std::vector<ShardPlan> const plans = plans_of(one);
  std::vector<StepProgram> programs;
  for (ShardPlan const& plan : plans) programs.push_back(make_step_program(plan));
  std::optional<StepFinding> const found = find_step_defect(plans, programs);
  if (!found) return 1;
  ParallelConfig const& parallel = one.parallel;
  CAPTURE(to_string(parallel.strategy), parallel.zero_stage, parallel.shard_group, static_cast<int>(parallel.partition),
          static_cast<int>(parallel.gradient_reduction), static_cast<int>(parallel.reduce),
          static_cast<int>(parallel.granularity), static_cast<int>(parallel.reduction), parallel.overlap,
          parallel.in_flight, parallel.prefetch, parallel.unit, parallel.bucket_bytes, one.ranks, one.micro_batches,
          one.layers);
  FAIL(to_string(found->defect) << ": " << found->message);
  return 0;
}

/// With each way to cut and to time the reductions of a strategy.
int check_reductions(Case one) {
  int proved = 0;
  for (ReduceWhen const when : {ReduceWhen::by_strategy, ReduceWhen::last, ReduceWhen::each})
    for (double const bytes : {1e9, 4096.0 * one.ranks, 1024.0})
      for (bool const overlap : {true, false})
        for (Index const in_flight : {1, 2, 5}) {
          one.parallel.reduce = when;
          one.parallel.bucket_bytes = one.parallel.first_bucket_bytes = bytes;
          one.parallel.overlap = overlap;
          one.parallel.in_flight = in_flight;
          one.parallel.reduction = ReductionMode::fast;
          proved += check_proved(one);
          one.parallel.reduction = ReductionMode::ordered;
          proved += check_proved(one);
        }
  return proved;
}

} // namespace

TEST_CASE("the programs of every strategy are proved, however they cut and time reductions", "[parallel][program]") {
  Rank const ranks = GENERATE(1, 2, 3, 4, 6);
  Index const micro_batches = GENERATE(1, 2, 3, 4);
  for (ParallelConfig const& parallel : all_strategies(ranks)) {
    bool const once = row_of(parallel.strategy).collects() || has_dedicated_servers(parallel);
    CHECK(check_reductions({parallel, ranks, micro_batches, 2}) >= (once ? 18 : 36));
  }
}

TEST_CASE("programs that reduce slices between the pieces of a backward are proved", "[parallel][program]") {
  Rank const ranks = GENERATE(2, 4);
  Index const micro_batches = GENERATE(1, 2);
  bool in_pieces = false;
  for (ParallelConfig parallel : all_strategies(ranks)) {
    bool const once = row_of(parallel.strategy).collects() || has_dedicated_servers(parallel);
    CHECK(check_reductions({parallel, ranks, micro_batches, 2, 16}) >= (once ? 18 : 36));
    parallel.bucket_bytes = parallel.first_bucket_bytes = 1024;
    for_each_instruction(make_step_program(plans_of({parallel, ranks, micro_batches, 2, 16}).front()).step,
                         [&](Instruction const& one) {
                           in_pieces = in_pieces || (one.piece > 0 && parallel.strategy == Strategy::hsdp);
                         });
  }
  CHECK((in_pieces || ranks == 2)); // hsdp needs two groups of two ranks
}

TEST_CASE("the programs of every strategy are proved for up to 64 ranks and six blocks, however far they gather ahead",
          "[parallel][program]") {
  Rank const ranks = GENERATE(range(1, 17), 32, 64);
  for (ParallelConfig parallel : all_strategies(ranks))
    for (Index const layers : {1, 2, 3, 6})
      for (Index const prefetch : {0, 1, 2, 3, 9}) {
        parallel.prefetch = prefetch;
        parallel.overlap = true;
        Index const micro_batches = 1 + (prefetch + layers) % 4;
        CHECK(check_proved({parallel, ranks, micro_batches, layers}) == 1);
        parallel.overlap = false;
        CHECK(check_proved({parallel, ranks, micro_batches, layers}) == 1);
      }
}

TEST_CASE("programs whose units have several blocks are proved, however they cut and time reductions",
          "[parallel][program][unit]") {
  Rank const ranks = GENERATE(1, 2, 4);
  Index const prefetch = GENERATE(0, 1, 2);
  for (ParallelConfig parallel : all_strategies(ranks)) {
    bool const once = row_of(parallel.strategy).collects() || has_dedicated_servers(parallel);
    parallel.prefetch = prefetch;
    parallel.unit = 3;
    CHECK(check_reductions({parallel, ranks, 1 + prefetch, 5, 4, {Recompute::full}}) >= (once ? 18 : 36));
    parallel.unit = 2; // in slices, too
    if (prefetch == 1) CHECK(check_reductions({parallel, ranks, 2, 3, 16}) >= (once ? 18 : 36));
  }
}

TEST_CASE("tensor by tensor and in one piece, data-parallel programs are proved", "[parallel][program]") {
  Rank const ranks = GENERATE(1, 2, 3, 8);
  for (Granularity const granularity : {Granularity::step, Granularity::tensor})
    for (ReduceWhen const when : {ReduceWhen::last, ReduceWhen::each})
      for (Index micro_batches = 1; micro_batches <= 4; ++micro_batches)
        CHECK(check_proved({{.reduce = when, .granularity = granularity}, ranks, micro_batches, 3}) == 1);
}

TEST_CASE("a program does not grow with the number of micro-batches", "[parallel][program]") {
  for (ParallelConfig const& parallel : all_strategies(4)) {
    ShardPlan const few = plans_of({parallel, 4, 8, 3}).front();
    ShardPlan many = few;
    many.layout.rank_micro_batches = 10'000;
    auto const size = [](StepProgram const& program) {
      std::size_t sum = 0;
      for (Segment const& segment : program.step) sum += segment.instructions.size();
      return sum;
    };
    StepProgram const program = make_step_program(many);
    CHECK(size(program) == size(make_step_program(few)));
    std::set<Index> seen;
    Index losses = 0;
    for_each_instruction(program.step, [&](Instruction const& instruction) {
      if (instruction.act != Act::loss) return;
      ++losses;
      seen.insert(instruction.micro_batch);
    });
    CHECK(losses == many.layout.rank_micro_batches);
    CHECK(std::ssize(seen) == many.layout.rank_micro_batches);
  }
}

TEST_CASE("instructions are told in words", "[parallel][program]") {
  ShardPlan const plan = plans_of({{.strategy = Strategy::zero, .zero_stage = 3}, 2, 1, 1}).front();
  std::vector<std::string> words;
  for_each_instruction(make_step_program(plan).step,
                       [&](Instruction const& instruction) { words.push_back(to_string(instruction, plan)); });
  CHECK(words == std::vector<std::string>{"load, micro-batch 0",
                                          "gather root into slot 0",
                                          "gather block 0 into slot 1",
                                          "wait for gather root in slot 0",
                                          "forward embed, micro-batch 0",
                                          "wait for gather block 0 in slot 1",
                                          "gather root into slot 0",
                                          "forward attention 0, micro-batch 0",
                                          "forward mlp 0, micro-batch 0",
                                          "wait for gather root in slot 0",
                                          "gather block 0 into slot 1",
                                          "forward head, micro-batch 0",
                                          "loss, micro-batch 0",
                                          "backward head, micro-batch 0",
                                          "wait for gather block 0 in slot 1",
                                          "backward mlp 0, micro-batch 0",
                                          "backward attention 0, micro-batch 0",
                                          "reduce bucket 0, micro-batch 0",
                                          "backward embed, micro-batch 0",
                                          "reduce bucket 1, micro-batch 0",
                                          "wait for reduce bucket 0, micro-batch 0",
                                          "accumulate bucket 0, micro-batch 0",
                                          "wait for reduce bucket 1, micro-batch 0",
                                          "accumulate bucket 1, micro-batch 0",
                                          "agree on losses",
                                          "norm"});
}

TEST_CASE("programs that compute again or split the loss are proved, and gather no more often", "[parallel][program]") {
  Rank const ranks = GENERATE(1, 2, 4);
  using enum Recompute;
  int proved = 0;
  auto const gathers = [&](Case const& one) {
    Index count = 0;
    for_each_instruction(make_step_program(plans_of(one).front()).step,
                         [&](Instruction const& instruction) { count += instruction.act == Act::gather ? 1 : 0; });
    return count;
  };
  for (ParallelConfig const& parallel : all_strategies(ranks))
    for (std::vector<Recompute> const& recompute : {std::vector{full}, {selective}, {none, full, selective}}) {
      Case again{parallel, ranks, 2, 3, 4, recompute, recompute.size() > 1 ? 8 : 1};
      proved += check_reductions(again);
      if (find_parallel_problem(parallel, {}, ranks, 2)) continue;
      Case once = again;
      once.recompute = {};
      CHECK(gathers(again) == gathers(once));
    }
  CHECK(proved >= 6);
}

TEST_CASE("blocks compute again before their backward, but for the one that ran last", "[parallel][program]") {
  using enum Recompute;
  auto const words = [](std::vector<Recompute> const& recompute) {
    ShardPlan const plan = plans_of({{}, 1, 1, 2, 4, recompute}).front();
    std::vector<std::string> found;
    for_each_instruction(make_step_program(plan).step, [&](Instruction const& one) {
      if (one.act == Act::backward || one.act == Act::recompute) found.push_back(to_string(one, plan));
    });
    return found;
  };
  using Words = std::vector<std::string>;
  CHECK(words({full}) == Words{"backward head, micro-batch 0", "backward mlp 1, micro-batch 0",
                               "backward attention 1, micro-batch 0", "recompute attention 0, micro-batch 0",
                               "recompute mlp 0, micro-batch 0", "backward mlp 0, micro-batch 0",
                               "backward attention 0, micro-batch 0", "backward embed, micro-batch 0"});
  CHECK(words({selective}) == Words{"backward head, micro-batch 0", "backward mlp 1, micro-batch 0",
                                    "backward attention 1, micro-batch 0", "backward mlp 0, micro-batch 0",
                                    "recompute attention 0, micro-batch 0", "backward attention 0, micro-batch 0",
                                    "backward embed, micro-batch 0"});
  CHECK(std::ranges::count_if(words({full, none}), [](auto const& one) { return one.starts_with("recompute"); }) == 0);
}

TEST_CASE("slices of a block are reduced behind the piece of backward that completes them", "[parallel][program]") {
  GptConfig const model{.layers = 1, .heads = 1, .channels = 16, .context = 4, .vocab = 16};
  ParameterTable const table(model, 4);
  REQUIRE(table.units()[1].padded == 4096);
  auto const words = [&](bool overlap) {
    ParallelConfig const in_slices{
        .bucket_bytes = 4096, .first_bucket_bytes = 4096, .overlap = overlap, .in_flight = 9};
    ShardPlan const plan = make_shard_plan(in_slices, {}, {}, {}, table, Topology::one_node(4), 0, 1);
    std::vector<std::string> found;
    for_each_instruction(make_step_program(plan).step, [&](Instruction const& one) {
      if (one.act == Act::backward || one.act == Act::reduce) found.push_back(to_string(one, plan));
    });
    return found;
  };
  // elements from 2240 on are fcproj's, from 1152 on fc's, from 848 on attproj's
  CHECK(words(true) ==
        std::vector<std::string>{
            "backward head, micro-batch 0", "backward mlp 0, piece 0, micro-batch 0", "reduce bucket 0, micro-batch 0",
            "backward mlp 0, piece 1, micro-batch 0", "reduce bucket 1, micro-batch 0",
            "backward mlp 0, piece 2, micro-batch 0", "backward attention 0, piece 0, micro-batch 0",
            "reduce bucket 2, micro-batch 0", "backward attention 0, piece 1, micro-batch 0",
            "backward attention 0, piece 2, micro-batch 0", "reduce bucket 3, micro-batch 0",
            "backward embed, micro-batch 0", "reduce bucket 4, micro-batch 0", "reduce bucket 5, micro-batch 0",
            "reduce bucket 6, micro-batch 0", "reduce bucket 7, micro-batch 0"});
  CHECK(words(false) ==
        std::vector<std::string>{
            "backward head, micro-batch 0", "backward mlp 0, micro-batch 0", "backward attention 0, micro-batch 0",
            "reduce bucket 0, micro-batch 0", "reduce bucket 1, micro-batch 0", "reduce bucket 2, micro-batch 0",
            "reduce bucket 3, micro-batch 0", "backward embed, micro-batch 0", "reduce bucket 4, micro-batch 0",
            "reduce bucket 5, micro-batch 0", "reduce bucket 6, micro-batch 0", "reduce bucket 7, micro-batch 0"});
}
