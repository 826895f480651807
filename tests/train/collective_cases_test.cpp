// What a run tries its collectives on: mistakes in schedules that it must see, on numbers of ranks that hid them once,
// and cases that are like what training sends and take no more memory.

#include "train/plan/collective_cases.hpp"

#include "comm/algorithms/registry.hpp"
#include "comm/measurement/exact_data.hpp"
#include "comm/simulation/simulator.hpp"
#include "parallel/plan/engine_memory.hpp"
#include "support/numeric_run.hpp"
#include "train/plan/run_plan.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <algorithm>
#include <functional>

using namespace trainstone;
using namespace trainstone::test;

namespace {

using Mistake = std::function<void(Schedule&)>;

ShardPlan make_plan(ParallelConfig const& parallel, GptConfig const& model, Rank ranks, Rank rank,
                    CommConfig const& comm = {}, PrecisionConfig const& precision = {}) {
  return make_shard_plan(parallel, {}, precision, comm, ParameterTable(model, mesh_of(parallel, ranks).parts()),
                         Topology::one_node(ranks), rank, 1);
}

GptConfig const tiny{.layers = 1, .heads = 1, .channels = 8, .context = 4, .vocab = 16};
GptConfig const wide{.layers = 3, .heads = 4, .channels = 128, .context = 16, .vocab = 64};

/// How many of all ranks' elements the check finds wrong, if rank 0's schedules have a mistake.
Index found_wrong(ShardPlan const& plan, Mistake const& mistake) {
  Index wrong = 0;
  for (CollectiveCase const& tried : collective_cases(plan)) {
    Problem const& problem = tried.planned.problem;
    ExactData const truth(problem, Operation::sum, ElementType::float32);
    std::vector<Schedule> schedules = make_schedules(problem, tried.planned.algorithm);
    if (problem.elements() >= problem.ranks()) mistake(schedules.front());
    std::vector<std::vector<float>> data(static_cast<std::size_t>(problem.ranks()));
    for (Rank rank = 0; rank < problem.ranks(); ++rank) {
      data[static_cast<std::size_t>(rank)].resize(static_cast<std::size_t>(problem.elements()));
      truth.fill<float>(rank, data[static_cast<std::size_t>(rank)]);
    }
    data = NumericRun(schedules, data).run();
    for (Rank rank = 0; rank < problem.ranks(); ++rank)
      wrong += truth.wrong<float>(rank, data[static_cast<std::size_t>(rank)]);
  }
  return wrong;
}

Slice data_of(Range const& range) { return {BufferId::data, range}; }

/// In the end the rank's first two blocks change places.
void exchange_blocks(Schedule& schedule) {
  Index const size = schedule.elements / schedule.ranks;
  Slice const first = data_of({0, size}), second = data_of({size, 2 * size});
  Slice const free{BufferId::scratch, {schedule.scratch_elements, schedule.scratch_elements + size}};
  schedule.scratch_elements += size;
  schedule.rounds.push_back({Move::copy(first, free), Move::copy(second, first), Move::copy(free, second)});
}

/// Of naive: where it adds what rank 3 has sent, it takes that of rank 10.
void take_ten_for_three(Schedule& schedule) {
  auto const from = [&](Rank peer) {
    for (Round const& round : schedule.rounds)
      for (Move const& move : round)
        if (move.action == Action::receive && move.peer == peer) return move.to.range;
    return Range{};
  };
  Range const three = from(3), ten = from(10);
  for (Round& round : schedule.rounds)
    for (Move& move : round)
      if (move.is_local() && move.from.buffer == BufferId::scratch && move.from.range == three) move.from.range = ten;
}

Index longest_message_of(CollectiveCase const& tried, Rank rank) {
  Index longest = 0;
  for (Round const& round : make_schedule(tried.planned.problem, tried.planned.algorithm, rank).rounds)
    for (Move const& move : round)
      if (move.is_message()) longest = std::max(longest, move.size());
  return longest;
}

/// How many pieces the first message has.
int pieces_of_a_message(CollectiveCase const& tried, Rank rank) {
  for (Round const& round : make_schedule(tried.planned.problem, tried.planned.algorithm, rank).rounds) {
    for (Move const& move : round) {
      if (move.action != Action::send) continue;
      int pieces = 0;
      for (Index i = move.from.range.begin; i < move.from.range.end;
           i += tried.pieces.contiguous(i, move.from.range.end - i))
        ++pieces;
      return pieces;
    }
  }
  return 0;
}

} // namespace

TEST_CASE("a schedule that exchanges two blocks is found on any number of ranks", "[train][verification]") {
  Rank const ranks = GENERATE(2, 3, 7, 14, 21);
  for (std::string const algorithm : {"naive", "ring"}) {
    ShardPlan const plan = make_plan({}, tiny, ranks, 0, {.allreduce = algorithm});
    CHECK(found_wrong(plan, [](Schedule&) {}) == 0);
    CHECK(found_wrong(plan, exchange_blocks) > 0);
  }
}

TEST_CASE("a schedule that leaves out one rank and adds the seventh after it twice is found", "[train][verification]") {
  Rank const ranks = GENERATE(14, 15, 28);
  ShardPlan const plan = make_plan({}, tiny, ranks, 0, {.allreduce = "naive"});
  CHECK(found_wrong(plan, [](Schedule&) {}) == 0);
  CHECK(found_wrong(plan, take_ten_for_three) > 0);
}

TEST_CASE("collectives are tried on messages that are cut where they are staged, and in several pieces",
          "[train][verification]") {
  Rank const ranks = GENERATE(2, 3, 8);
  GptConfig model = wide;
  model.layers = 3 * ranks; // a bucket's block of every rank is longer than 1 MiB
  for (ParallelConfig const& parallel :
       {ParallelConfig{}, ParallelConfig{.strategy = Strategy::zero, .zero_stage = 2}}) {
    for (RecipeName const recipe : {RecipeName::fp32, RecipeName::mixed18}) {
      ShardPlan const plan = make_plan(parallel, model, ranks, 0, {}, {.recipe = recipe});
      bool cuts = false, in_pieces = false;
      for (CollectiveCase const& tried : collective_cases(plan)) {
        Index const longest = longest_message(MessageBuffers::staged, bytes_per_value(tried.storage));
        Index const moved = longest_message_of(tried, 0);
        cuts = cuts || (moved > longest && moved < 2 * longest && tried.storage == plan.reductions.storage);
        in_pieces = in_pieces || pieces_of_a_message(tried, 0) >= 3;
      }
      INFO(to_string(parallel.strategy) << ' ' << to_string(recipe));
      CHECK(cuts);
      CHECK(in_pieces == (parallel.strategy == Strategy::zero)); // gradients of DDP lie in one piece
    }
  }
}

TEST_CASE("trying a collective takes no more memory than training will", "[train][verification]") {
  Rank const ranks = GENERATE(2, 5);
  GptConfig model = wide;
  model.layers = 2 * ranks;
  std::vector<ParallelConfig> all{{}, {.strategy = Strategy::naive}, {.strategy = Strategy::zero, .zero_stage = 3}};
  all.push_back({.strategy = Strategy::zero, .zero_stage = 1, .partition = StatePartition::inter_layer});
  all.push_back({.strategy = Strategy::hsdp, .shard_group = ranks == 2 ? 2 : 1});
  for (ParallelConfig const& parallel : all) {
    Rank const rank = ranks - 1;
    ShardPlan const plan = make_plan(parallel, model, ranks, rank, {.buffers = "staged"});
    std::uint64_t const small = most_elements_tried * sizeof(float);
    for (CollectiveCase const& tried : collective_cases(plan)) {
      Schedule const schedule = make_schedule(tried.planned.problem, tried.planned.algorithm,
                                              plan.layout.mesh.index(tried.planned.axis, rank));
      std::size_t const bytes = bytes_per_value(tried.storage);
      INFO(to_string(parallel.strategy) << ", " << to_string(schedule.collective) << " of " << schedule.elements);
      if (schedule.elements > 0) CHECK(tried.extent() >= schedule.elements);
      if (schedule.elements <= most_elements_tried) continue; // every kind of block
      bool const gathers = !plan.gathers.of_unit.front().empty() &&
                           plan.gathers.of_unit.front().front().planned.problem.collective == schedule.collective;
      CHECK(tried.extent() <= std::max(plan.layout.elements(), most_elements_tried));
      CHECK(schedule.scratch_elements <=
            (gathers ? gather_scratch(plan.gathers, plan.layout) : reduction_scratch(plan.reductions, plan.layout)));
      CHECK(staging_bytes(MessageBuffers::staged, schedule, bytes) <=
            std::max(small, gathers ? pinned_gather_bytes(plan) : pinned_reduction_bytes(plan)));
    }
  }
}

TEST_CASE("the sum of the token table's gradient over stages is tried on both of them", "[train][verification]") {
  RunConfig config;
  config.model = wide;
  config.data.sequence = wide.context;
  config.batch = {1, 2, 2};
  config.parallel.pipeline = 3;
  std::vector<RunPlan> const stages = plan_stages(resolve_run(config, Topology::one_node(3)));
  auto const of_table = [&](std::size_t stage) {
    return std::ranges::count_if(collective_cases(stages[stage].parallel),
                                 [](CollectiveCase const& one) { return one.planned.stages == StagePair{0, 2}; });
  };
  CHECK(of_table(0) == 5); // all kinds of blocks
  CHECK(of_table(1) == 0);
  CHECK(of_table(2) == 5);
}
