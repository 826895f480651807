#include "lectures/taught_units.hpp"

#include "comm/simulation/simulator.hpp"
#include "lectures/taught_gathers.hpp"
#include "parallel/plan/shard_plan.hpp"
#include "parallel/program/step_counts.hpp"
#include "parallel/program/step_programs.hpp"

#include <algorithm>
#include <string_view>

namespace trainstone {

namespace {

constexpr std::string_view model = "gpt3-6.7b";
constexpr std::size_t element_bytes = 2;

ShardPlan plan_with(GptConfig const& config, std::int64_t blocks, Rank ranks) {
  ParameterTable const table(config, ranks, {}, blocks);
  auto const bucket = static_cast<double>(table.units().back().padded) * element_bytes;
  ParallelConfig const parallel{.strategy = Strategy::zero,
                                .zero_stage = 3,
                                .bucket_bytes = bucket,
                                .first_bucket_bytes = bucket,
                                .unit = blocks};
  return make_shard_plan(parallel, {}, {.recipe = RecipeName::mixed16}, {}, table, Topology::one_node(ranks), 0, 1);
}

UnitRow row_of(ShardPlan const& plan, std::int64_t blocks, MachineModel const& machine) {
  auto const layers = static_cast<std::uint64_t>(plan.parts.layers()), k = static_cast<std::uint64_t>(blocks);
  MachineModel const starts = uniform_machine({machine.of(Link::intra)(0), 0, 0});
  UnitRow row{.blocks = blocks, .exact_gathers = 2 * ((layers + k - 1) / k + 1)};
  for (RepeatedCollective const& gather : collectives_of(make_step_outline(plan).step, plan)) {
    if (gather.what != "parameters") continue;
    Problem const& problem = gather.planned.problem;
    Traffic const sent =
        predict_traffic(schedule_of(gather.planned, plan.layout.mesh, 0), problem.topology, element_bytes);
    row.gathers += gather.times;
    row.messages += gather.times * sent.messages;
    row.bytes += gather.times * sent.bytes;
    row.largest_message = std::max(row.largest_message, sent.bytes / sent.messages); // of a ring all are alike
    auto const times = static_cast<double>(gather.times);
    row.start += times * price(problem, gather.planned.algorithm, element_bytes, starts);
    row.seconds += times * price(problem, gather.planned.algorithm, element_bytes, machine);
  }
  row.slot_bytes = static_cast<std::uint64_t>(plan.gathers.slots * plan.layout.largest_unit()) * element_bytes;
  row.fresh_bytes = static_cast<std::uint64_t>(plan.reductions.fresh_elements()) * element_bytes;
  return row;
}

} // namespace

TaughtUnits compare_units(Rank ranks, MachineModel const& machine) {
  TRAINSTONE_REQUIRE(2 <= ranks && ranks <= most_gather_ranks, "units are compared on 2 to {} ranks, not on {}",
                     most_gather_ranks, ranks);
  GptConfig const config = *find_preset(model);
  TaughtUnits lecture{std::string(model), config.layers, {}};
  for (std::int64_t const blocks : {std::int64_t{1}, std::int64_t{2}, std::int64_t{4}, std::int64_t{8}, config.layers})
    lecture.rows.push_back(row_of(plan_with(config, blocks, ranks), blocks, machine));
  return lecture;
}

} // namespace trainstone
