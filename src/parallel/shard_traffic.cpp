// The collectives of a plan, each with how often it runs, and what they send.

#include "comm/registry.hpp"
#include "core/storage.hpp"
#include "parallel/shard_plan.hpp"

#include <algorithm>
#include <iterator>

namespace trainstone {

namespace {

std::string row_name(char const* what, PlannedCollective const& planned) {
  std::string const axis = planned.axis == Axis::replica ? " across replicas" : "";
  return fmt::format("{}, {} {}{}", what, to_string(planned.problem.collective), to_string(planned.algorithm), axis);
}

Traffic traffic_of(ShardPlan const& plan, PlannedCollective const& planned, std::size_t element_bytes) {
  return predict_traffic(schedule_of(planned, plan.mesh, plan.rank), planned.problem.topology, element_bytes,
                         longest_message(plan.message_buffers, element_bytes));
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

/// All groups.
void add_gathers(std::vector<RepeatedCollective>& all, ShardPlan const& plan, std::uint64_t times) {
  for (auto const& gather : plan.gathers)
    if (gather) all.push_back({"parameters", *gather, bytes_per_value(plan.types.parameters), {}, times});
}

void add_reductions(std::vector<RepeatedCollective>& all, ShardPlan const& plan) {
  std::size_t const element_bytes = bytes_per_value(plan.gradient_storage());
  auto const turns = static_cast<std::uint64_t>(plan.turns);
  for (auto const& [bucket, count] : plan.buckets.by_size()) {
    for (PlannedCollective const& step : plan.reduction_of(bucket)) {
      std::uint64_t const times = plan.reduce_each && !plan.is_of_sums(step) ? turns : 1;
      all.push_back({"gradients", step, element_bytes, plan.pieces_of(bucket, step), times * count});
    }
  }
}

} // namespace

std::vector<RepeatedCollective> ShardPlan::start_collectives() const {
  std::vector<RepeatedCollective> all;
  auto const vectors = static_cast<std::uint64_t>(1 + moments);
  for (PlannedCollective const& group : state_broadcasts)
    all.push_back({"state at the start", group, sizeof(float), {}, vectors});
  return all;
}

std::vector<RepeatedCollective> ShardPlan::step_collectives() const {
  std::vector<RepeatedCollective> all;
  add_reductions(all, *this);
  // once before forward and once before backward, root before embed and before head
  if (sharding.parameters) add_gathers(all, *this, 2 * static_cast<std::uint64_t>(turns));
  return all;
}

std::vector<RepeatedCollective> ShardPlan::update_collectives() const {
  std::vector<RepeatedCollective> all;
  if (gathers_after_update()) add_gathers(all, *this, 1);
  return all;
}

std::vector<RepeatedCollective> ShardPlan::evaluation_collectives() const {
  std::vector<RepeatedCollective> all;
  if (!sharding.parameters) return all;
  add_gathers(all, *this, 1);
  if (!all.empty()) ++all.front().times; // root again, for the head
  return all;
}

std::optional<RepeatedCollective> ShardPlan::heaviest(Collective collective) const {
  auto const bytes = [](RepeatedCollective const& one) {
    return static_cast<std::uint64_t>(one.planned.problem.elements()) * one.element_bytes;
  };
  std::optional<RepeatedCollective> most;
  for (auto const& all : {step_collectives(), update_collectives(), evaluation_collectives()})
    for (RepeatedCollective const& one : all)
      if (one.planned.problem.collective == collective && (!most || bytes(one) > bytes(*most))) most = one;
  return most;
}

std::vector<TrafficRow> ShardPlan::start_traffic() const { return rows_of(*this, start_collectives()); }

std::vector<TrafficRow> ShardPlan::step_traffic() const {
  std::vector<RepeatedCollective> all = step_collectives();
  std::ranges::copy(update_collectives(), std::back_inserter(all));
  return rows_of(*this, all);
}

Traffic ShardPlan::update_traffic() const { return traffic_of(*this, update_collectives()); }

Traffic ShardPlan::evaluation_traffic() const { return traffic_of(*this, evaluation_collectives()); }

Traffic control_traffic_of(Index values, Topology const& topology, Rank rank) {
  Problem const problem{.collective = Collective::all_reduce,
                        .partition = Partition::even(values, topology.ranks()),
                        .topology = topology};
  return predict_traffic(make_schedule(problem, Algorithm::ring, rank), topology, sizeof(double));
}

std::vector<TrafficRow> ShardPlan::control_traffic() const {
  Traffic const norm = norm_gather ? traffic_of(*this, *norm_gather, sizeof(double)) : Traffic();
  return {{"control: losses of all micro-batches, requests of all ranks",
           control_traffic_of(micro_batches() + topology.ranks(), topology, rank)},
          {"control: squared sums of the norm", norm}};
}

Traffic ShardPlan::evaluation_control() const { return control_traffic_of(micro_batches(), topology, rank); }

} // namespace trainstone
