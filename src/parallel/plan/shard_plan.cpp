#include "parallel/plan/shard_plan.hpp"

#include "comm/algorithms/registry.hpp"
#include "comm/execution/shared_overhead.hpp"
#include "core/error.hpp"
#include "core/storage.hpp"
#include "kernels/norm_block.hpp"
#include "parallel/plan/step_order.hpp"

#include <algorithm>
#include <bit>
#include <set>

namespace trainstone {

namespace {

std::uint64_t bytes_of(Index elements, Storage storage) {
  return memory_footprint(static_cast<std::uint64_t>(elements) * bytes_per_value(storage));
}

/// What the deck says, or the default of an engine's collective.
Algorithm algorithm_of(AlgorithmKey const& key, CommConfig const& comm, ShardPlan const& plan) {
  std::string const& name = comm.*key.member;
  if (names_algorithm(name)) return parse_algorithm(key.collective, name);
  if (plan.ordered && adds_up(key.collective)) return Algorithm::ordered;
  if (has_root(key.collective)) return plan.main_device ? Algorithm::linear : Algorithm::binomial;
  return Algorithm::ring;
}

/// \param[in] line  the topology of the axis
PlannedCollective planned_collective(ShardPlan const& plan, CommConfig const& comm, Axis axis, Topology const& line,
                                     Collective collective, Index elements) {
  auto const key = std::ranges::find(algorithm_keys, collective, &AlgorithmKey::collective);
  TRAINSTONE_REQUIRE(key != algorithm_keys.end(), "no key names an algorithm of {}", to_string(collective));
  Algorithm const algorithm = algorithm_of(*key, comm, plan);
  Problem const problem{.collective = collective,
                        .partition = Partition::even(elements, plan.mesh.size(axis)),
                        .topology = line,
                        .shared_memory = find_algorithm(collective, algorithm).uses_shared_memory()};
  return {axis, problem, algorithm};
}

Topology line_of(ShardPlan const& plan, Axis axis) { return plan.topology.of(plan.mesh.members(axis, plan.rank)); }

std::optional<Axis> sharers(std::optional<PlannedCollective> const& planned) {
  if (!planned || !planned->problem.shared_memory) return std::nullopt;
  return planned->axis;
}

Index scratch_of(ShardPlan const& plan, std::optional<PlannedCollective> const& planned) {
  return planned ? schedule_of(*planned, plan.mesh, plan.rank).scratch_elements : 0;
}

std::uint64_t staging_of(ShardPlan const& plan, std::optional<PlannedCollective> const& planned,
                         std::size_t element_bytes) {
  bool const copies = planned && plan.message_buffers == MessageBuffers::staged;
  return copies ? staging_bytes(plan.message_buffers, schedule_of(*planned, plan.mesh, plan.rank), element_bytes) : 0;
}

/// Of gathers that are alike, the first one.
std::vector<PlannedCollective const*> different_gathers(ShardPlan const& plan) {
  std::vector<PlannedCollective const*> different;
  for (auto const& gather : plan.gathers)
    if (gather && std::ranges::none_of(different, [&](auto const* other) { return are_alike(*gather, *other); }))
      different.push_back(&*gather);
  return different;
}

/// Of buckets that are alike, the first one.
std::vector<Bucket> different_buckets(ShardPlan const& plan) {
  std::vector<Bucket> different;
  std::set<std::vector<Index>> shapes;
  for (auto const& [bucket, count] : plan.buckets.by_size())
    if (shapes.insert(shape_of(plan, bucket)).second) different.push_back(bucket);
  return different;
}

void add_memory(std::vector<MemoryItem>& items, MemoryCategory category, std::string const& name, Index elements,
                Storage storage, std::optional<Axis> sharers) {
  std::uint64_t const bytes = bytes_of(elements, storage);
  items.push_back({category, name, bytes});
  if (sharers)
    items.push_back({MemoryCategory::buffers, fmt::format("shared memory's flags: {}", name), shared_overhead(bytes)});
}

/// What a bucket has of one owner's shares, group by group.
void append_member(Pieces& pieces, ShardPlan const& plan, Bucket const& bucket, Rank member) {
  Index const begin = plan.buckets.runs[static_cast<std::size_t>(bucket.run)].memory.begin;
  for (BucketPart const& part : bucket.parts) {
    ParameterGroup const& group = plan.groups[static_cast<std::size_t>(part.group)];
    Range const share = plan.ownership.share(part.group, member);
    if (share.empty()) continue;
    Index const first = group.offset - begin + share.begin;
    pieces.append({first + part.of_share.begin, first + part.of_share.end});
  }
}

Ownership ownership_of(ParallelConfig const& parallel, ShardPlan const& plan) {
  if (parallel.updates_alone()) return Ownership::of_one(plan.groups, plan.mesh.shard, 0);
  if (parallel.partition == StatePartition::inter_layer) return Ownership::of_groups(plan.groups, plan.mesh.shard);
  return Ownership::of_parts(plan.groups, plan.mesh.shard);
}

/// The main device collects everything at once.
Granularity granularity_of(ParallelConfig const& parallel) {
  return parallel.strategy == Strategy::naive ? Granularity::step : parallel.granularity;
}

void plan_buckets(ShardPlan& plan, ParallelConfig const& parallel, ParameterTable const& table) {
  ParallelConfig cut = parallel;
  cut.granularity = granularity_of(parallel);
  plan.buckets = make_buckets(table, plan.mesh, plan.ownership, cut, bytes_per_value(plan.gradient_storage()));
}

void plan_reduction(ShardPlan& plan, ParallelConfig const& parallel, CommConfig const& comm) {
  auto const add = [&](Axis axis, Collective collective) {
    if (plan.mesh.size(axis) > 1)
      plan.reduction.push_back(planned_collective(plan, comm, axis, line_of(plan, axis), collective, 0));
  };
  bool const all_reduces = parallel.gradient_reduction == GradientReductionWay::all_reduce;
  bool const to_one = plan.ownership.owner(0).has_value();
  add(Axis::shard, all_reduces ? Collective::all_reduce : to_one ? Collective::reduce : Collective::reduce_scatter);
  if (plan.main_device) {
    add(Axis::replica, Collective::reduce);
    add(Axis::replica, Collective::broadcast);
  } else {
    add(Axis::replica, Collective::all_reduce);
  }
}

/// Replicas of a main device have their state from it.
void plan_start(ShardPlan& plan) {
  if (!plan.main_device || plan.mesh.replica == 1) return;
  Topology const line = line_of(plan, Axis::replica);
  for (ParameterGroup const& group : plan.groups)
    plan.state_broadcasts.push_back(
        planned_collective(plan, {}, Axis::replica, line, Collective::broadcast, group.padded));
}

void plan_gathers(ShardPlan& plan, CommConfig const& comm) {
  plan.gathers.resize(plan.groups.size());
  if (plan.mesh.shard == 1) return;
  Topology const line = line_of(plan, Axis::shard);
  for (std::size_t g = 0; g < plan.groups.size(); ++g) {
    std::optional<Rank> const owner = plan.ownership.owner(static_cast<Index>(g));
    Collective const collective = owner ? Collective::broadcast : Collective::all_gather;
    plan.gathers[g] = planned_collective(plan, comm, Axis::shard, line, collective, plan.groups[g].padded);
    plan.gathers[g]->problem.root = owner.value_or(0);
  }
  plan.norm_gather = planned_collective(plan, {}, Axis::shard, line, Collective::all_gather, 0);
  std::vector<Index> blocks;
  for (Index const element : plan.ownership.members_shares().offsets()) blocks.push_back(element / norm_block);
  plan.norm_gather->problem.partition = Partition::of_offsets(std::move(blocks));
}

} // namespace

Schedule schedule_of(PlannedCollective const& planned, Mesh const& mesh, Rank rank) {
  return make_schedule(planned.problem, planned.algorithm, mesh.index(planned.axis, rank));
}

BucketReduction ShardPlan::reduction_of(Bucket const& bucket) const {
  BucketReduction sized = reduction;
  Index const share = bucket.share_elements();
  for (PlannedCollective& step : sized) {
    Index const elements = step.axis == Axis::shard ? share * ownership.owners() : share;
    step.problem.partition = Partition::even(elements, mesh.size(step.axis));
    if (step.axis == Axis::shard && has_root(step.problem.collective))
      step.problem.root = ownership.owner(bucket.parts.front().group).value_or(0);
  }
  return sized;
}

Pieces ShardPlan::pieces_of(Bucket const& bucket, PlannedCollective const& step) const {
  Pieces pieces;
  if (is_of_sums(step)) return pieces;
  for (Rank owner = 0; owner < mesh.shard; ++owner)
    if (step.axis == Axis::shard || owner == member()) append_member(pieces, *this, bucket, owner);
  return pieces;
}

Index ShardPlan::largest_group() const { return std::ranges::max(groups, {}, &ParameterGroup::padded).padded; }

Index ShardPlan::share_begin(Index group, bool shares_alone) const {
  return shares_alone ? share_offset(group) : groups[static_cast<std::size_t>(group)].offset + share(group).begin;
}

Index ShardPlan::norm_blocks_begin(Index group, Rank owner) const {
  return (ownership.members_shares().range(owner).begin + ownership.offset(group, owner)) / norm_block;
}

Index ShardPlan::micro_batch(Index own, Rank of) const {
  Rank const together = sharding.gradients ? mesh.shard : 1;
  Index const apart = mesh.data() / together;
  Rank const index = mesh.data_index(of);
  return index / together * (micro_batches() / apart) + own * together + index % together;
}

Range ShardPlan::run_memory(Index run) const {
  Range const flat = buckets.runs[static_cast<std::size_t>(run)].memory;
  if (!fresh_gradients_apart()) return flat;
  Index const roots = std::ssize(buckets.runs) - 1, root_elements = buckets.runs.back().memory.size();
  if (run == roots) return {0, flat.size()};
  Index slot = 0;
  for (BucketGroup const& other : buckets.runs)
    if (other.first_group != 0) slot = std::max(slot, other.memory.size());
  Index const begin = root_elements + run % in_flight * slot;
  return {begin, begin + flat.size()};
}

Index ShardPlan::fresh_elements() const {
  if (!fresh_gradients_apart()) return 0;
  Index end = 0;
  for (Index run = 0; run < std::ssize(buckets.runs); ++run) end = std::max(end, run_memory(run).end);
  return end;
}

Index ShardPlan::waiting_sums() const { return ordered ? std::bit_width(static_cast<std::uint64_t>(turns)) - 1 : 0; }

std::optional<Axis> ShardPlan::sharers_of_fresh() const {
  for (PlannedCollective const& step : reduction)
    if (!is_of_sums(step) && step.problem.shared_memory) return step.axis;
  return std::nullopt;
}

std::optional<Axis> ShardPlan::sharers_of_sums() const {
  for (PlannedCollective const& step : reduction)
    if (is_of_sums(step) && step.problem.shared_memory) return step.axis;
  return std::nullopt;
}

std::optional<Axis> ShardPlan::sharers_of_parameters() const { return sharers(gathers.front()); }

Index ShardPlan::reduction_scratch() const {
  Index most = 0;
  for (Bucket const& bucket : different_buckets(*this))
    for (PlannedCollective const& step : reduction_of(bucket)) most = std::max(most, scratch_of(*this, step));
  return most;
}

Index ShardPlan::gather_scratch() const {
  Index most = 0;
  for (PlannedCollective const* const gather : different_gathers(*this))
    most = std::max(most, scratch_of(*this, *gather));
  return most;
}

std::uint64_t ShardPlan::pinned_reduction_bytes() const {
  std::size_t const element_bytes = bytes_per_value(gradient_storage());
  std::uint64_t most = 0;
  for (Bucket const& bucket : different_buckets(*this))
    for (PlannedCollective const& step : reduction_of(bucket))
      most = std::max(most, staging_of(*this, step, element_bytes));
  for (PlannedCollective const& start : state_broadcasts)
    most = std::max(most, staging_of(*this, start, sizeof(float)));
  return most;
}

std::uint64_t ShardPlan::pinned_gather_bytes() const {
  std::uint64_t most = 0;
  for (PlannedCollective const* const gather : different_gathers(*this))
    most = std::max(most, staging_of(*this, *gather, bytes_per_value(types.parameters)));
  return most;
}

std::uint64_t ShardPlan::pinned_norm_bytes() const { return staging_of(*this, norm_gather, sizeof(double)); }

std::vector<MemoryItem> ShardPlan::memory() const {
  std::vector<MemoryItem> items;
  bool const stages = fresh_gradients_apart();
  add_memory(items, MemoryCategory::parameters, "parameters", sharding.parameters ? share_elements() : elements(),
             types.parameters, sharding.parameters ? std::nullopt : sharers_of_parameters());
  add_memory(items, MemoryCategory::gradients, "gradients", sum_elements(), gradient_storage(),
             stages ? sharers_of_sums() : sharers_of_fresh());
  std::uint64_t const share = bytes_of(share_elements(), Storage::fp32);
  items.push_back({MemoryCategory::optimizer, "moments", static_cast<std::uint64_t>(moments) * share});
  if (types.master) items.push_back({MemoryCategory::optimizer, "master parameters", share});
  if (types.gradient_copy) items.push_back({MemoryCategory::optimizer, "gradients in fp32", share});
  if (sharding.parameters)
    add_memory(items, MemoryCategory::buffers, "gather slots", gather_slots() * largest_group(), types.parameters,
               sharers_of_parameters());
  if (stages)
    add_memory(items, MemoryCategory::buffers, "fresh gradients", fresh_elements(), gradient_storage(),
               sharers_of_fresh());
  return items;
}

std::vector<PlannedTensor> ShardPlan::buffers() const {
  std::vector<PlannedTensor> tensors;
  Index const of_reduction = reduction_scratch(), of_gather = gather_scratch(); // they make schedules
  for (Index i = 0; i < in_flight; ++i)
    tensors.push_back(planned(gradient_storage(), "reduction scratch", of_reduction));
  for (Index i = 0; i < waiting_sums(); ++i) tensors.push_back(planned<float>("waiting sums", sum_elements()));
  for (Index i = 0; i <= prefetch; ++i) tensors.push_back(planned(types.parameters, "gather scratch", of_gather));
  tensors.push_back(planned<double>("norm block sums", elements() / norm_block));
  tensors.push_back(planned<double>("norm blocks of a group", largest_group() / norm_block));
  tensors.push_back(planned<double>("norm group sums", std::ssize(groups)));
  return tensors;
}

std::vector<PlannedTensor> ShardPlan::pinned_buffers() const {
  if (message_buffers != MessageBuffers::staged) return {};
  std::vector<PlannedTensor> tensors;
  std::uint64_t const of_reduction = pinned_reduction_bytes(), of_gather = pinned_gather_bytes(); // they make schedules
  for (Index i = 0; i < in_flight; ++i)
    tensors.push_back(planned<std::byte>("reduction staging", static_cast<Index>(of_reduction)));
  for (Index i = 0; i <= prefetch; ++i)
    tensors.push_back(planned<std::byte>("gather staging", static_cast<Index>(of_gather)));
  tensors.push_back(planned<std::byte>("norm staging", static_cast<Index>(pinned_norm_bytes())));
  return tensors;
}

ShardPlan make_shard_plan(ParallelConfig const& parallel, OptimizerConfig const& optimizer,
                          PrecisionConfig const& precision, CommConfig const& comm, ParameterTable const& table,
                          Topology const& topology, Rank rank, Index turns) {
  Mesh const mesh = mesh_of(parallel, topology.ranks());
  if (auto const problem = find_parallel_problem(parallel, comm, mesh.data(), turns))
    throw InputError(problem->message);
  ShardPlan plan;
  plan.groups = table.groups();
  plan.parts = PartTable(table);
  plan.topology = topology;
  plan.rank = rank;
  plan.turns = turns;
  plan.message_buffers = resolve_buffers(comm.buffers);
  plan.types = state_types(precision);
  plan.moments = optimizer.moments();
  plan.mesh = mesh;
  plan.ownership = ownership_of(parallel, plan);
  Index const stage = parallel.strategy == Strategy::hsdp ? 3 : parallel.zero_stage;
  bool const shards = mesh.shard > 1; // with itself alone a rank shares nothing
  plan.sharding = {stage >= 3 && shards, stage >= 2 && shards};
  plan.ordered = parallel.reduction == ReductionMode::ordered;
  plan.main_device = parallel.strategy == Strategy::naive && mesh.data() > 1;
  plan.overlap = parallel.overlap && granularity_of(parallel) != Granularity::step;
  plan.reduce_each = plan.sharding.gradients || (parallel.reduce == ReduceWhen::each && turns > 1);
  plan.across_each = parallel.strategy == Strategy::hsdp && parallel.reduce == ReduceWhen::each;
  plan.in_flight = parallel.strategy == Strategy::naive ? 1 : parallel.in_flight;
  plan.prefetch = parallel.prefetch;
  for (AlgorithmKey const& key : algorithm_keys)
    algorithm_of(key, comm, plan); // unknown names are refused, used or not
  plan_buckets(plan, parallel, table);
  plan_reduction(plan, parallel, comm);
  plan_gathers(plan, comm);
  plan_start(plan);
  return plan;
}

} // namespace trainstone
