#include "parallel/program/step_walk.hpp"

#include "model/parameter_runs.hpp"
#include "parallel/program/step_programs.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

namespace trainstone {

namespace {

std::size_t at(Index i) { return static_cast<std::size_t>(i); }

/// Goes through the instructions of a step. A moment ends with what is computed; the reductions that follow it start as
/// it ends.
class Walker {
public:
  Walker(std::vector<ShardPlan> plans, ParameterTable const& table)
      : m_plans(std::move(plans)),
        m_table(table),
        m_plan(m_plans.front()),
        m_states(m_plan.layout.units.size()),
        m_slots(at(m_plan.gathers.in_flight())) {}

  std::vector<Moment> walk() {
    StepProgram const program = make_step_program(m_plan);
    for_each_instruction(program.update, [&](Instruction const& one) { play(one); }); // of the step before
    m_next = {"start", {}, {}, {}, {}};
    bool started = false;
    for_each_instruction(program.step, [&](Instruction const& one) {
      bool const fetches = one.act == Act::fetch || one.started == Act::fetch;
      bool const starts = fetches || one.act == Act::load || one.act == Act::gather || one.act == Act::publish;
      if (!starts && !std::exchange(started, true)) add_moment();
      play(one);
    });
    for (UnitState& state : m_states)
      if (state.gradient == Holding::own) state.gradient = Holding::whole; // of one rank, which adds up nothing
    m_next.name = "update";
    m_versions_end = true;
    add_moment();
    for_each_instruction(program.update, [&](Instruction const& one) { play(one); });
    m_moments.back().after = std::move(m_next.before);
    return std::move(m_moments);
  }

private:
  struct Slot {
    Index unit = Instruction::none;
    bool there = false;
  };

  void play(Instruction const& one) {
    switch (one.act) {
    case Act::gather:
      m_slots[at(one.slot)] = {one.subject, false};
      m_next.before.push_back(of_parameters(one.subject));
      break;
    case Act::publish:
      m_published[one.subject] = false;
      m_next.before.push_back(of_parameters(one.subject));
      break;
    case Act::forward:
    case Act::backward: compute(one); break;
    case Act::reduce:
    case Act::reduce_sums: reduce(one); break;
    case Act::update: m_published.clear(); break;
    case Act::wait: end(one); break;
    default: break;
    }
  }

  void end(Instruction const& one) {
    switch (one.started) {
    case Act::fetch: break; // shares stay what they are
    case Act::gather:
      if (m_used != Instruction::none) m_slots[at(m_used)] = {};
      m_used = one.slot;
      m_slots[at(m_used)].there = true;
      break;
    case Act::publish: m_published[one.subject] = true; break;
    case Act::reduce:
    case Act::reduce_sums:
      std::erase_if(m_reducing, [&](Instruction const& other) { return other.subject == one.subject; });
      if (!is_reducing(one.subject)) set_gradients(one.subject, sum_is_whole() ? Holding::whole : Holding::share);
      break;
    default: throw Error(fmt::format("a walk goes through one stage, which does not {}", to_string(one.started)));
    }
  }

  /// Parts of a block between which nothing starts are one moment.
  void compute(Instruction const& one) {
    Part const part = m_plan.parts[one.subject];
    Index const number = m_plan.parts.unit(one.subject);
    ParameterUnit const& unit = m_plan.layout.units[at(number)];
    bool const forward = one.act == Act::forward, is_of_block = part.block >= 0;
    if (!forward) m_states[at(number)].gradient = Holding::own;
    m_next.name = (forward ? "forward " : "backward ") + (is_of_block ? unit.name : to_string(part));
    Moment const& last = m_moments.back();
    if (last.name != m_next.name || !m_next.before.empty() || !last.after.empty()) add_moment();
  }

  /// The next moment begins here.
  void add_moment() {
    std::vector<UnitState> const before = m_states;
    for (Index g = 0; g < std::ssize(m_states); ++g) m_states[at(g)].parameters = parameters_of(g);
    for (Index g = 0; g < std::ssize(m_states); ++g)
      if (m_plan.layout.sharding.parameters && before[at(g)].parameters == Holding::whole &&
          m_states[at(g)].parameters != Holding::whole)
        m_next.dropped.push_back(g);
    m_next.states = m_states;
    m_moments.push_back(std::exchange(m_next, {}));
  }

  Holding parameters_of(Index unit) const {
    if (m_plan.layout.mesh.shard == 1) return Holding::whole;
    if (m_versions_end) return Holding::share; // shares change, so what was gathered is old
    if (m_plan.gathers.after_update) {
      auto const found = m_published.find(unit);
      if (found == m_published.end()) return Holding::share;
      return found->second ? Holding::whole : Holding::under_way;
    }
    Holding held = Holding::share;
    for (Slot const& slot : m_slots)
      if (slot.unit == unit && held != Holding::whole) held = slot.there ? Holding::whole : Holding::under_way;
    return held;
  }

  bool sum_is_whole() const {
    if (m_plan.reductions.collectives.empty()) return !m_plan.layout.sharding.gradients;
    PlannedCollective const& first = m_plan.reductions.collectives.front();
    bool const is_owners = first.axis == Axis::shard && first.problem.collective != Collective::all_reduce;
    return !is_owners && !m_plan.layout.sharding.gradients;
  }

  /// Whether another bucket of the same units is under way.
  bool is_reducing(Index bucket) const {
    Index const run = m_plan.reductions.buckets.bucket(bucket).run;
    return std::ranges::any_of(m_reducing, [&](Instruction const& other) {
      return m_plan.reductions.buckets.bucket(other.subject).run == run;
    });
  }

  void set_gradients(Index bucket, Holding held) {
    for (Index const unit : units_of(bucket)) m_states[at(unit)].gradient = held;
  }

  WalkedCollective of_parameters(Index unit) const {
    return collective("parameters of " + m_plan.layout.units[at(unit)].name, m_plan.layout.types.parameters,
                      [=](ShardPlan const& plan) { return plan.gathers.of_unit[at(unit)].front().planned; });
  }

  template <class Planned>
  WalkedCollective collective(std::string what, Storage storage, Planned const& planned) const {
    WalkedCollective walked{planned(m_plan), std::move(what), false, false, {}, storage};
    for (ShardPlan const& plan : m_plans) {
      PlannedCollective const mine = planned(plan);
      walked.traffic.push_back(
          predict_traffic(schedule_of(mine, plan.layout.mesh, plan.layout.rank), mine.problem.topology, 1));
    }
    return walked;
  }

  void reduce(Instruction const& one) {
    std::vector<WalkedCollective>& started = m_moments.back().after;
    Bucket const bucket = m_plan.reductions.buckets.bucket(one.subject);
    bool const waits =
        std::ranges::any_of(m_reducing, [&](Instruction const& other) { return other.slot == one.slot; });
    bool follows = false;
    for (std::size_t step = 0; step < m_plan.reductions.collectives.size(); ++step) {
      if (m_plan.reductions.is_of_sums(m_plan.reductions.collectives[step]) != (one.act == Act::reduce_sums)) continue;
      started.push_back(
          collective(what_is_reduced(step) + names_of(one.subject), m_plan.reductions.storage,
                     [&](ShardPlan const& plan) { return plan.reductions.reduction_of(bucket, plan.layout)[step]; }));
      started.back().follows = follows;
      started.back().waits = waits && !follows;
      follows = true;
    }
    m_reducing.push_back(one);
    set_gradients(one.subject, Holding::under_way);
  }

  char const* what_is_reduced(std::size_t step) const {
    if (step == 0) return "gradient of ";
    bool const is_sum = m_plan.reductions.collectives[step].problem.collective == Collective::broadcast;
    return is_sum ? "the sum of the gradient of " : "its share of the gradient of ";
  }

  /// The units that a bucket takes, or is a tensor of.
  std::vector<Index> units_of(Index bucket) const {
    BucketRun const& run = m_plan.reductions.buckets.runs[at(m_plan.reductions.buckets.bucket(bucket).run)];
    std::vector<Index> units;
    for (Index unit = run.first_unit; unit <= run.last_unit; ++unit) units.push_back(unit);
    return units;
  }

  std::string names_of(Index bucket) const {
    std::string names = tensor_names(bucket);
    if (!names.empty()) return names;
    for (Index const unit : units_of(bucket)) names += (names.empty() ? "" : ", ") + m_plan.layout.units[at(unit)].name;
    return names;
  }

  /// "block 1 qkvw"; empty if the bucket is no tensor.
  std::string tensor_names(Index bucket) const {
    std::string names;
    Bucket const taken = m_plan.reductions.buckets.bucket(bucket);
    if (m_plan.reductions.buckets.runs[at(taken.run)].slice_ends.empty()) return names;
    for (BucketPart const& part : taken.parts)
      for_each_tensor(m_table, part.group, part.of_share, [&](ParameterTensor const& tensor, Range const&) {
        names += (names.empty() ? "" : ", ") + tensor.name;
      });
    return names;
  }

  std::vector<ShardPlan> const m_plans;
  ParameterTable const& m_table;
  ShardPlan const& m_plan;
  std::vector<UnitState> m_states;
  std::vector<Slot> m_slots;
  std::map<Index, bool> m_published;   ///< units: under way, or there
  std::vector<Instruction> m_reducing; ///< started, and nobody has waited for them
  Index m_used = Instruction::none;    ///< the slot
  bool m_versions_end = false;
  Moment m_next;
  std::vector<Moment> m_moments;
};

} // namespace

Holding held_by(StateLayout const& layout, Index unit, Rank rank, StatePart part, Holding held) {
  Mesh const& mesh = layout.mesh;
  if (std::optional<Rank> const owner = layout.ownership.owner(layout.units[at(unit)].first_group)) {
    bool const is_owner = mesh.index(Axis::shard, rank) == *owner, is_parameter = part == StatePart::parameters;
    if (held == Holding::share) return is_owner ? Holding::whole : Holding::nothing;
    if (is_parameter && is_owner) return Holding::whole; // while it sends it, too
    return is_parameter && held == Holding::whole && layout.sharding.parameters ? Holding::copy : held;
  }
  if (mesh.servers == 0) return held;
  if (!mesh.serves(rank)) return held == Holding::share ? Holding::nothing : held;
  if (part != StatePart::gradient) return Holding::share;
  return held == Holding::own ? Holding::nothing : held;
}

Holding optimizer_held_by(StateLayout const& layout, Index unit, Rank rank) {
  bool const is_shared_out = layout.ownership.owners() > 1 || layout.ownership.owner(0).has_value();
  return held_by(layout, unit, rank, StatePart::optimizer, is_shared_out ? Holding::share : Holding::whole);
}

Rank number_of_share(Mesh const& mesh, Rank rank) {
  Rank const member = mesh.index(Axis::shard, rank);
  return mesh.serves(rank) ? member - (mesh.shard - mesh.servers) : member;
}

StepWalk walk_step(ParallelConfig const& parallel, CommConfig const& comm, ParameterTable const& table,
                   Topology const& topology, PrecisionConfig const& precision) {
  ParallelConfig one_unit_each = parallel;
  one_unit_each.server_schedule = ServerSchedule::fifo; // ranks hold the same
  Index largest = std::ranges::max(table.units(), {}, &ParameterUnit::padded).padded;
  if (parallel.reduction == ReductionMode::ordered)
    largest += table.groups()[at(table.find(Tensor::wte).group)].padded; // its gradient has two parts
  one_unit_each.bucket_bytes = one_unit_each.first_bucket_bytes = static_cast<double>(largest) * sizeof(float);
  StepWalk walk;
  for (Rank rank = 0; rank < topology.ranks(); ++rank)
    walk.plans.push_back(make_shard_plan(one_unit_each, {}, precision, comm, table, topology, rank, 1));
  walk.moments = Walker(walk.plans, table).walk();
  return walk;
}

std::vector<WalkedCollective> collectives_of(StepWalk const& walk) {
  std::vector<WalkedCollective> all;
  for (Moment const& moment : walk.moments)
    for (auto const* started : {&moment.before, &moment.after}) all.insert(all.end(), started->begin(), started->end());
  return all;
}

} // namespace trainstone
