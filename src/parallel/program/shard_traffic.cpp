#include "parallel/program/shard_traffic.hpp"

#include "comm/algorithms/registry.hpp"
#include "core/storage.hpp"
#include "parallel/program/step_programs.hpp"

#include <algorithm>
#include <iterator>

namespace trainstone {

namespace {

std::string row_name(std::string_view what, PlannedCollective const& planned) {
  if (planned.stages && planned.problem.collective == Collective::broadcast)
    return fmt::format("{}, messages between stages", what);
  std::string const axis = planned.stages                  ? " over the first and the last stage"
                           : planned.axis == Axis::replica ? " across replicas"
                           : is_layer_axis(planned.axis)   ? " over tensor ranks"
                                                           : "";
  return fmt::format("{}, {} {}{}", what, to_string(planned.problem.collective), to_string(planned.algorithm), axis);
}

Traffic traffic_of(ShardPlan const& plan, PlannedCollective const& planned, std::size_t element_bytes) {
  return predict_traffic(schedule_of(planned, plan.layout.mesh, plan.layout.rank), planned.problem.topology,
                         element_bytes, longest_message(plan.message_buffers, element_bytes));
}

Traffic traffic_of(ShardPlan const& plan, RepeatedCollective const& repeated) {
  return repeated.times * traffic_of(plan, repeated.planned, repeated.element_bytes);
}

Traffic traffic_of(ShardPlan const& plan, std::vector<RepeatedCollective> const& all) {
  Traffic sum;
  for (RepeatedCollective const& repeated : all) sum += traffic_of(plan, repeated);
  return sum;
}

/// One row for all that have its name.
std::vector<TrafficRow> rows_of(ShardPlan const& plan, std::vector<RepeatedCollective> const& all) {
  std::vector<TrafficRow> rows;
  for (RepeatedCollective const& repeated : all) {
    std::string const name = row_name(repeated.what, repeated.planned);
    auto row = std::ranges::find(rows, name, &TrafficRow::name);
    if (row == rows.end()) row = rows.insert(row, {name, {}});
    row->traffic += traffic_of(plan, repeated);
  }
  return rows;
}

} // namespace

std::vector<RepeatedCollective> start_collectives(ShardPlan const& plan) {
  std::vector<RepeatedCollective> all;
  auto const vectors = static_cast<std::uint64_t>(1 + plan.layout.moments);
  for (PlannedCollective const& group : plan.state_broadcasts)
    all.push_back({"state at the start", group, sizeof(float), {}, vectors});
  return all;
}

std::vector<RepeatedCollective> step_collectives(ShardPlan const& plan) {
  return collectives_of(make_step_outline(plan).step, plan);
}

std::vector<RepeatedCollective> update_collectives(ShardPlan const& plan) {
  return publications_of(make_step_outline(plan), plan);
}

std::vector<RepeatedCollective> evaluation_collectives(ShardPlan const& plan) {
  return collectives_of(make_step_outline(plan).evaluation, plan);
}

std::optional<RepeatedCollective> heaviest_collective(ShardPlan const& plan, Collective collective,
                                                      bool of_tensor_ranks) {
  auto const bytes = [](RepeatedCollective const& one) {
    return static_cast<std::uint64_t>(one.planned.problem.elements()) * one.element_bytes;
  };
  auto const is_asked = [&](PlannedCollective const& one) {
    return one.problem.collective == collective && (of_tensor_ranks ? is_layer_axis(one.axis) : is_data_axis(one.axis));
  };
  std::optional<RepeatedCollective> most;
  for (auto const& all : {step_collectives(plan), update_collectives(plan), evaluation_collectives(plan)})
    for (RepeatedCollective const& one : all)
      if (is_asked(one.planned) && (!most || bytes(one) > bytes(*most))) most = one;
  return most;
}

std::vector<TrafficRow> start_traffic(ShardPlan const& plan) { return rows_of(plan, start_collectives(plan)); }

std::vector<TrafficRow> step_traffic(ShardPlan const& plan) {
  StepProgram const outline = make_step_outline(plan);
  std::vector<RepeatedCollective> all = collectives_of(outline.step, plan);
  std::ranges::copy(publications_of(outline, plan), std::back_inserter(all));
  return rows_of(plan, all);
}

Traffic update_traffic(ShardPlan const& plan) { return traffic_of(plan, update_collectives(plan)); }

Traffic evaluation_traffic(ShardPlan const& plan) { return traffic_of(plan, evaluation_collectives(plan)); }

Traffic control_traffic_of(Index values, Topology const& topology, Rank rank) {
  Problem const problem{.collective = Collective::all_reduce,
                        .partition = Partition::even(values, topology.ranks()),
                        .topology = topology};
  return predict_traffic(make_schedule(problem, Algorithm::ring, rank), topology, sizeof(double));
}

std::vector<TrafficRow> control_traffic(ShardPlan const& plan) {
  Traffic norm =
      plan.gathers.norm && !plan.by_priority() ? traffic_of(plan, *plan.gathers.norm, sizeof(double)) : Traffic();
  StateLayout const& layout = plan.layout;
  for (Axis const axis : model_axes)
    if (layout.mesh.size(axis) > 1)
      norm += control_traffic_of(layout.model_sections, layout.line(axis), layout.mesh.index(axis, layout.rank));
  return {{"control: losses of all micro-batches, requests of all ranks",
           control_traffic_of(plan.layout.micro_batches() + plan.layout.topology.ranks(), plan.layout.topology,
                              plan.layout.rank)},
          {"control: squared sums of the norm", norm}};
}

Traffic evaluation_control(ShardPlan const& plan, Index rank_micro_batches) {
  return control_traffic_of(rank_micro_batches * plan.layout.mesh.data(), plan.layout.topology, plan.layout.rank);
}

} // namespace trainstone
