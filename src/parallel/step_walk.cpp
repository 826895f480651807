#include "parallel/step_walk.hpp"

#include <algorithm>
#include <deque>
#include <iterator>
#include <ranges>
#include <utility>

namespace trainstone {

namespace {

std::size_t at(Index i) { return static_cast<std::size_t>(i); }

/// Goes through the hooks of the engine in the order of the step loop.
class Walker {
public:
  explicit Walker(std::vector<ShardPlan> plans)
      : m_plans(std::move(plans)), m_plan(m_plans.front()), m_order(m_plan), m_states(m_plan.groups.size()) {
    if (m_plan.mesh.shard > 1) return;
    for (GroupState& state : m_states) state.parameters = Holding::whole;
  }

  std::vector<Moment> walk(Index layers) {
    std::vector<Unit> const all = units(layers);
    begin();
    for (Unit const unit : all) forward(unit);
    for (Unit const unit : all | std::views::reverse) backward(unit);
    update();
    return std::move(m_moments);
  }

private:
  void begin() {
    Moment moment{"start", {}, {}, {}, {}};
    if (m_plan.gathers_after_update()) m_order.begin(all_groups(m_plan)); // the step before has started these
    if (m_plan.sharding.parameters) moment.before = started_by(m_order.begin(gather_sequence(m_plan, Pass::training)));
    look_at_parameters({});
    add(std::move(moment));
  }

  void forward(Unit unit) {
    Moment moment{"forward " + to_string(unit), {}, {}, {}, {}};
    acquire(unit, Direction::forward, moment);
    add(std::move(moment));
  }

  void backward(Unit unit) {
    Moment moment{"backward " + to_string(unit), {}, {}, {}, {}};
    Index const group = group_read_by(unit);
    make_room(group);
    if (unit.kind != UnitKind::embed && m_plan.sharding.parameters) acquire(unit, Direction::backward, moment);
    m_states[at(group)].gradient = Holding::own;
    add(std::move(moment));
    if (Index const completed = group_completed_by(unit); completed >= 0) reduce(completed, m_moments.back().after);
  }

  void update() {
    Moment moment{"update", {}, {}, {}, {}};
    while (!m_in_flight.empty()) finish_oldest();
    m_order = GatherOrder(m_plan); // shares change, so what was gathered is old
    std::vector<Index> const outdated = look_at_parameters({});
    if (m_plan.sharding.parameters) moment.dropped = outdated;
    if (m_plan.gathers_after_update()) moment.after = started_by(m_order.begin(all_groups(m_plan)));
    add(std::move(moment));
  }

  void add(Moment moment) {
    m_moments.push_back(std::move(moment));
    m_moments.back().states = m_states;
  }

  void acquire(Unit unit, Direction direction, Moment& moment) {
    if (!m_plan.sharding.parameters && m_order.is_finished()) return;
    std::size_t const place = gather_place(m_plan, unit, direction);
    moment.before = started_by(m_order.acquire(place));
    moment.dropped = look_at_parameters(place);
  }

  /// Brings what ranks have of parameters up to date; returns what they had whole and have not any more.
  /// \param[in] used  the place in the sequence that is in use, if one is
  std::vector<Index> look_at_parameters(std::optional<std::size_t> used) {
    if (m_plan.mesh.shard == 1) return {}; // always whole
    std::vector<GroupState> const old = m_states;
    for (GroupState& state : m_states) state.parameters = Holding::share;
    for (std::size_t place = 0; place < m_order.started(); ++place) {
      bool const there = place < m_order.acquired(), kept = !m_plan.sharding.parameters || place == used;
      if (there && !kept) continue; // its slot is free
      Holding& holding = m_states[at(m_order.group(place))].parameters;
      if (holding != Holding::whole) holding = there ? Holding::whole : Holding::under_way;
    }
    std::vector<Index> dropped;
    for (Index g = 0; g < std::ssize(m_states); ++g)
      if (old[at(g)].parameters == Holding::whole && m_states[at(g)].parameters != Holding::whole) dropped.push_back(g);
    return dropped;
  }

  std::vector<WalkedCollective> started_by(std::vector<GatherAction> const& actions) const {
    std::vector<WalkedCollective> started;
    for (GatherAction const& action : actions) {
      if (action.kind != GatherAction::Kind::start) continue;
      Index const group = m_order.group(action.place);
      started.push_back(collective("parameters of " + m_plan.groups[at(group)].name,
                                   [=](ShardPlan const& plan) { return *plan.gathers[at(group)]; }));
    }
    return started;
  }

  template <class Planned>
  WalkedCollective collective(std::string what, Planned const& planned) const {
    WalkedCollective walked{planned(m_plan), std::move(what), false, false, {}};
    for (ShardPlan const& plan : m_plans) {
      PlannedCollective const mine = planned(plan);
      walked.traffic.push_back(predict_traffic(schedule_of(mine, plan.mesh, plan.rank), mine.problem.topology, 1));
    }
    return walked;
  }

  /// Fresh gradients go where others may still be reduced.
  void make_room(Index group) {
    if (!m_plan.fresh_gradients_apart()) return;
    Index const run = run_of_group(m_plan, group);
    auto const is_there = [&](Index bucket) { return share_memory(m_plan, run, m_plan.buckets.bucket(bucket).run); };
    while (std::ranges::any_of(m_in_flight, is_there)) finish_oldest();
  }

  void reduce(Index group, std::vector<WalkedCollective>& started) {
    constexpr Index turn = 0;
    std::optional<Index> const number = run_to_reduce(m_plan, group, turn);
    if (!number) return;
    BucketGroup const& run = m_plan.buckets.runs[at(*number)];
    for (Index bucket = run.first_bucket; bucket < run.first_bucket + run.buckets; ++bucket) {
      auto const has_scratch = [&](Index other) { return share_scratch(m_plan, bucket, other); };
      while (m_plan.fresh_gradients_apart() && std::ranges::any_of(m_in_flight, has_scratch)) finish_oldest();
      bool const waits = std::ranges::any_of(m_in_flight, has_scratch);
      start(bucket, waits, started);
    }
    while (!m_plan.overlap && !m_in_flight.empty()) finish_oldest();
  }

  void start(Index number, bool waits, std::vector<WalkedCollective>& started) {
    Bucket const bucket = m_plan.buckets.bucket(number);
    for (std::size_t step = 0; step < m_plan.reduction.size(); ++step) {
      started.push_back(collective(what_is_reduced(step) + names_of(bucket),
                                   [&](ShardPlan const& plan) { return plan.reduction_of(bucket)[step]; }));
      started.back().follows = step > 0;
      started.back().waits = waits && step == 0;
    }
    for (BucketPart const& part : bucket.parts) m_states[at(part.group)].gradient = Holding::under_way;
    m_in_flight.push_back(number);
  }

  char const* what_is_reduced(std::size_t step) const {
    if (step == 0) return "gradient of ";
    bool const is_sum = m_plan.reduction[step].problem.collective == Collective::broadcast;
    return is_sum ? "the sum of the gradient of " : "its share of the gradient of ";
  }

  std::string names_of(Bucket const& bucket) const {
    std::string names;
    for (BucketPart const& part : bucket.parts)
      names += (names.empty() ? "" : ", ") + m_plan.groups[at(part.group)].name;
    return names;
  }

  void finish_oldest() {
    bool const scattered =
        !m_plan.reduction.empty() && m_plan.reduction.front().problem.collective == Collective::reduce_scatter;
    Holding const sum = scattered || m_plan.sharding.gradients ? Holding::share : Holding::whole;
    for (BucketPart const& part : m_plan.buckets.bucket(m_in_flight.front()).parts)
      m_states[at(part.group)].gradient = sum;
    m_in_flight.pop_front();
  }

  std::vector<ShardPlan> const m_plans;
  ShardPlan const& m_plan;
  GatherOrder m_order;
  std::vector<GroupState> m_states;
  std::deque<Index> m_in_flight; ///< buckets, those that wait for scratch included
  std::vector<Moment> m_moments;
};

} // namespace

StepWalk walk_step(ParallelConfig const& parallel, CommConfig const& comm, ParameterTable const& table,
                   Topology const& topology) {
  ParallelConfig one_group_each = parallel;
  Index const largest = std::ranges::max(table.groups(), {}, &ParameterGroup::padded).padded;
  one_group_each.bucket_bytes = one_group_each.first_bucket_bytes = static_cast<double>(largest) * sizeof(float);
  StepWalk walk;
  for (Rank rank = 0; rank < topology.ranks(); ++rank)
    walk.plans.push_back(make_shard_plan(one_group_each, {}, {}, comm, table, topology, rank, 1));
  walk.moments = Walker(walk.plans).walk(std::ssize(table.groups()) - 1);
  return walk;
}

std::vector<WalkedCollective> collectives_of(StepWalk const& walk) {
  std::vector<WalkedCollective> all;
  for (Moment const& moment : walk.moments)
    for (auto const* started : {&moment.before, &moment.after}) all.insert(all.end(), started->begin(), started->end());
  return all;
}

} // namespace trainstone
