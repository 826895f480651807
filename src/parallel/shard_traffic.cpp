// The collectives of a plan, each with how often it runs, and what they send.

#include "comm/registry.hpp"
#include "core/storage.hpp"
#include "parallel/program/step_counts.hpp"
#include "parallel/program/step_programs.hpp"
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

} // namespace

std::vector<RepeatedCollective> ShardPlan::start_collectives() const {
  std::vector<RepeatedCollective> all;
  auto const vectors = static_cast<std::uint64_t>(1 + moments);
  for (PlannedCollective const& group : state_broadcasts)
    all.push_back({"state at the start", group, sizeof(float), {}, vectors});
  return all;
}

std::vector<RepeatedCollective> ShardPlan::step_collectives() const {
  return collectives_of(make_step_outline(*this).step, *this);
}

std::vector<RepeatedCollective> ShardPlan::update_collectives() const {
  return publications_of(make_step_outline(*this), *this);
}

std::vector<RepeatedCollective> ShardPlan::evaluation_collectives() const {
  return collectives_of(make_step_outline(*this).evaluation, *this);
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
