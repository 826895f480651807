// What plans count from an outline is what the whole program does, instruction by instruction.

#include "parallel/plan/parallel_problems.hpp"
#include "parallel/program/step_counts.hpp"

#include "comm/execution/local_moves.hpp"
#include "parallel/plan/strategies.hpp"
#include "parallel/program/step_programs.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <set>

using namespace trainstone;

namespace {

/// Collectives, counted one by one.
struct Done {
  Traffic sent;
  std::uint64_t kernels = 0;
  std::uint64_t collectives = 0;

  void add(ShardPlan const& plan, PlannedCollective const& planned, Pieces const& pieces = {}) {
    Schedule const schedule = schedule_of(planned, plan.layout.mesh, plan.layout.rank);
    sent += predict_traffic(schedule, planned.problem.topology, sizeof(float));
    kernels += kernels_of(schedule, pieces);
    ++collectives;
  }
};

Done played(std::vector<Segment> const& segments, ShardPlan const& plan) {
  Done done;
  for_each_instruction(segments, [&](Instruction const& one) {
    if (one.act == Act::gather)
      for (auto const& [gather, pieces] : plan.gathers.of_unit[static_cast<std::size_t>(one.subject)])
        done.add(plan, gather, pieces);
    if (one.act != Act::reduce && one.act != Act::reduce_sums) return;
    Bucket const bucket = plan.reductions.buckets.bucket(one.subject);
    for (PlannedCollective const& step : plan.reductions.reduction_of(bucket, plan.layout))
      if (plan.reductions.is_of_sums(step) == (one.act == Act::reduce_sums))
        done.add(plan, step, plan.reductions.pieces_of(bucket, step, plan.layout));
  });
  return done;
}

Done counted(std::vector<Segment> const& outline, ShardPlan const& plan) {
  Done done;
  for (RepeatedCollective const& row : collectives_of(outline, plan)) {
    Done one;
    one.add(plan, row.planned, row.pieces);
    done.sent += row.times * one.sent;
    done.kernels += row.times * one.kernels;
    done.collectives += row.times;
  }
  return done;
}

ShardPlan plan_of(ParallelConfig const& parallel, Rank ranks, Rank rank, Index micro_batches) {
  GptConfig const model{.layers = 3, .heads = 1, .channels = 16, .context = 8, .vocab = 16};
  return make_shard_plan(parallel, {}, {}, {}, ParameterTable(model, mesh_of(parallel, ranks).parts()),
                         Topology::one_node(ranks), rank, micro_batches);
}

} // namespace

TEST_CASE("an outline does what the program does, however buckets are cut", "[parallel][program][counts]") {
  Rank const ranks = GENERATE(1, 2, 3, 4, 6);
  Index const micro_batches = GENERATE(1, 2, 5);
  for (ParallelConfig parallel : all_strategies(ranks))
    for (double const bytes : {1e9, 4096.0 * ranks, 1024.0})
      for (ReduceWhen const when : {ReduceWhen::by_strategy, ReduceWhen::each}) {
        parallel.bucket_bytes = parallel.first_bucket_bytes = bytes;
        parallel.reduce = when;
        if (find_parallel_problem(parallel, {}, ranks, micro_batches)) continue;
        for (Rank const rank : std::set<Rank>{0, ranks - 1}) {
          ShardPlan const plan = plan_of(parallel, ranks, rank, micro_batches);
          StepProgram const program = make_step_program(plan), outline = make_step_outline(plan);
          for (auto const& [all, few] :
               {std::pair{&program.step, &outline.step}, {&program.evaluation, &outline.evaluation}}) {
            Done const wanted = played(*all, plan), found = counted(*few, plan);
            CHECK(found.sent == wanted.sent);
            CHECK(found.kernels == wanted.kernels);
            CHECK(found.collectives == wanted.collectives);
          }
        }
      }
}

TEST_CASE("an outline does not grow with the number of buckets", "[parallel][program][counts]") {
  auto const plan_with = [](double bucket_bytes) {
    return plan_of(
        {.strategy = Strategy::zero, .zero_stage = 3, .bucket_bytes = bucket_bytes, .first_bucket_bytes = bucket_bytes},
        2, 0, 2);
  };
  ShardPlan const many = plan_with(2048), few = plan_with(8192); // all smaller than a group
  REQUIRE(many.reductions.buckets.buckets() > few.reductions.buckets.buckets());
  auto const instructions = [](StepProgram const& program) {
    std::size_t sum = 0;
    for (Segment const& segment : program.step) sum += segment.instructions.size();
    return sum;
  };
  CHECK(instructions(make_step_outline(many)) == instructions(make_step_outline(few)));
  CHECK(instructions(make_step_program(many)) > instructions(make_step_program(few)));
}
