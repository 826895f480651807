#include "parallel/plan/engine_memory.hpp"

#include "comm/algorithms/registry.hpp"
#include "comm/execution/shared_overhead.hpp"
#include "comm/schedule/problem_memory.hpp"
#include "core/storage.hpp"
#include "kernels/norm_block.hpp"

#include <algorithm>
#include <map>

namespace trainstone {

namespace {

std::size_t at(Index i) { return static_cast<std::size_t>(i); }

std::uint64_t bytes_of(Index elements, Storage storage) {
  return memory_footprint(static_cast<std::uint64_t>(elements) * bytes_per_value(storage));
}

/// Searches plan thousands of runs whose buckets are the same.
Index scratch_of(PlannedCollective const& planned, StateLayout const& layout) {
  thread_local ProblemMemory<Index> known(256);
  Rank const place = place_of(layout.rank, planned, layout.mesh);
  return known.of(planned.problem, planned.algorithm, static_cast<std::uint64_t>(place),
                  [&] { return make_schedule(planned.problem, planned.algorithm, place).scratch_elements; });
}

std::uint64_t staging_of(ShardPlan const& plan, PlannedCollective const& planned, std::size_t element_bytes) {
  if (plan.message_buffers != MessageBuffers::staged) return 0; // and no schedule is made
  return staging_bytes(plan.message_buffers, schedule_of(planned, plan.layout.mesh, plan.layout.rank), element_bytes);
}

void add_memory(std::vector<MemoryItem>& items, MemoryCategory category, std::string const& name, Index elements,
                Storage storage, std::optional<Axis> sharers) {
  std::uint64_t const bytes = bytes_of(elements, storage);
  items.push_back({category, name, bytes});
  if (sharers)
    items.push_back({MemoryCategory::buffers, fmt::format("shared memory's flags: {}", name), shared_overhead(bytes)});
}

/// With the kernels, or on the host; and the chunks by which an update moves what is elsewhere.
void add_optimizer(std::vector<MemoryItem>& items, ShardPlan const& plan) {
  StateLayout const& layout = plan.layout;
  OffloadPlan const& offload = plan.offload;
  std::uint64_t const share = bytes_of(layout.share_elements(), Storage::fp32);
  auto const add = [&](char const* name, Index vectors) {
    items.push_back({MemoryCategory::optimizer, name, static_cast<std::uint64_t>(vectors) * share, offload.optimizer});
  };
  if (offload.optimizer != Residence::file) {
    add("moments", layout.moments);
    if (layout.types.master) add("master parameters", 1);
    if (layout.types.gradient_copy && !offload.moves_optimizer()) add("gradients in fp32", 1);
  }
  if (!offload.has_chunks()) return;
  items.push_back({MemoryCategory::buffers, "offload chunks",
                   chunk_memory(offload, layout, plan.reductions.storage).total(), Residence::host});
}

/// All of them, or this rank's shares, wherever they lie.
void add_parameters(std::vector<MemoryItem>& items, ShardPlan const& plan) {
  StateLayout const& layout = plan.layout;
  Storage const storage = layout.types.parameters;
  switch (plan.offload.parameters) {
  case Residence::kernels:
    return add_memory(items, MemoryCategory::parameters, "parameters", layout.parameter_elements(), storage,
                      layout.sharding.parameters ? std::nullopt : plan.gathers.sharers());
  case Residence::host:
    items.push_back(
        {MemoryCategory::parameters, "parameters", bytes_of(layout.share_elements(), storage), Residence::host});
    return;
  case Residence::file:
    items.push_back({MemoryCategory::buffers, "fetch slots",
                     static_cast<std::uint64_t>(fetch_slots) * largest_fetch(layout) + file_alignment,
                     Residence::host});
    return;
  }
}

} // namespace

std::vector<MemoryItem> engine_memory(ShardPlan const& plan) {
  StateLayout const& layout = plan.layout;
  ReductionPlan const& reductions = plan.reductions;
  GatherPlan const& gathers = plan.gathers;
  std::vector<MemoryItem> items;
  bool const sharded = layout.sharding.parameters;
  add_parameters(items, plan);
  add_memory(items, MemoryCategory::gradients, "gradients", reductions.kept_elements(layout), reductions.storage,
             reductions.sharers_of_kept());
  add_optimizer(items, plan);
  if (sharded)
    add_memory(items, MemoryCategory::buffers, "gather slots", gathers.slots * layout.largest_unit(),
               layout.types.parameters, gathers.sharers());
  if (plan.tensor.memory_bytes > 0)
    add_memory(items, MemoryCategory::activations, "exchanged activations",
               static_cast<Index>(plan.tensor.memory_bytes / sizeof(float)), Storage::fp32, plan.tensor.sharers());
  if (reductions.fresh_gradients_apart)
    add_memory(items, MemoryCategory::buffers, "fresh gradients", reductions.fresh_elements(), reductions.storage,
               reductions.sharers_of_fresh());
  return items;
}

std::vector<PlannedTensor> engine_buffers(ShardPlan const& plan) {
  StateLayout const& layout = plan.layout;
  ReductionPlan const& reductions = plan.reductions;
  GatherPlan const& gathers = plan.gathers;
  std::vector<PlannedTensor> tensors;
  Index const of_gather = gather_scratch(gathers, layout); // it makes schedules
  for (Index const elements : reduction_scratches(reductions, layout))
    tensors.push_back(planned(reductions.storage, "reduction scratch", elements));
  for (Index i = 0; i < reductions.waiting_sums; ++i)
    tensors.push_back(planned<float>("waiting sums", reductions.kept_elements(layout)));
  for (Index i = 0; i < gathers.in_flight(); ++i)
    tensors.push_back(planned(layout.types.parameters, "gather scratch", of_gather));
  tensors.push_back(planned<double>("norm block sums", layout.elements() / norm_block));
  tensors.push_back(planned<double>("norm blocks of a group", layout.collected_norm_blocks()));
  tensors.push_back(planned<double>("norm section sums", layout.sections()));
  for (auto const& [exchange, one] : plan.tensor.exchanges)
    for (Index chunk = 0; chunk < one.chunks; ++chunk)
      tensors.push_back(
          {exchange_scratch_name(exchange),
           memory_footprint(static_cast<std::uint64_t>(exchange_scratch(plan, exchange)) * one.element_bytes)});
  if (plan.pipeline.table)
    tensors.push_back(planned(reductions.storage, "token table scratch", scratch_of(*plan.pipeline.table, layout)));
  return tensors;
}

std::vector<PlannedTensor> engine_pinned_buffers(ShardPlan const& plan) {
  if (plan.message_buffers != MessageBuffers::staged) return {};
  std::vector<PlannedTensor> tensors;
  for (std::uint64_t const bytes : pinned_reductions(plan))
    tensors.push_back(planned<std::byte>("reduction staging", static_cast<Index>(bytes)));
  for (std::uint64_t const bytes : pinned_gathers(plan))
    tensors.push_back(planned<std::byte>("gather staging", static_cast<Index>(bytes)));
  tensors.push_back(planned<std::byte>("norm staging", static_cast<Index>(pinned_norm_bytes(plan))));
  for (auto const& [exchange, planned_exchange] : plan.tensor.exchanges)
    for (Index chunk = 0; chunk < planned_exchange.chunks; ++chunk)
      tensors.push_back(
          planned<std::byte>("tensor staging", static_cast<Index>(pinned_exchange_bytes(plan, exchange))));
  for (PreparedMessage const& message : prepared_messages(plan.pipeline))
    tensors.push_back(planned<std::byte>("message staging", static_cast<Index>(pinned_message_bytes(plan, message))));
  if (plan.pipeline.table)
    tensors.push_back(planned<std::byte>("token table staging", static_cast<Index>(pinned_table_bytes(plan))));
  return tensors;
}

std::vector<Index> reduction_scratches(ReductionPlan const& reductions, StateLayout const& layout) {
  if (!reductions.by_priority) return std::vector(at(reductions.in_flight), reduction_scratch(reductions, layout));
  std::vector<Index> scratches;
  std::map<Index, Index> known; // by elements
  for (Index number = 0; number < reductions.in_flight; ++number) {
    Bucket const bucket = reductions.buckets.bucket(number);
    auto const [size, is_new] = known.try_emplace(bucket.share_elements(), 0);
    if (is_new) size->second = scratch_of(reductions.reduction_of(bucket, layout).front(), layout);
    scratches.push_back(size->second);
  }
  return scratches;
}

Index reduction_scratch(ReductionPlan const& reductions, StateLayout const& layout) {
  Index most = 0;
  for (Bucket const& bucket : different_buckets(reductions, layout))
    for (PlannedCollective const& step : reductions.reduction_of(bucket, layout))
      most = std::max(most, scratch_of(step, layout));
  return most;
}

Index gather_scratch(GatherPlan const& gathers, StateLayout const& layout) {
  Index most = 0;
  for (UnitGather const* const gather : different_gathers(gathers))
    most = std::max(most, scratch_of(gather->planned, layout));
  return most;
}

std::string exchange_scratch_name(SliceExchange exchange) {
  return fmt::format("tensor scratch: {}", to_string(exchange));
}

Index exchange_scratch(ShardPlan const& plan, SliceExchange exchange) {
  return scratch_of(plan.tensor.exchanges.at(exchange).collective, plan.layout);
}

std::uint64_t pinned_exchange_bytes(ShardPlan const& plan, SliceExchange exchange) {
  PlannedExchange const& planned = plan.tensor.exchanges.at(exchange);
  return staging_of(plan, planned.collective, planned.element_bytes);
}

std::uint64_t pinned_reduction_bytes(ShardPlan const& plan) {
  if (plan.message_buffers != MessageBuffers::staged) return 0; // and no problem is made
  std::size_t const element_bytes = bytes_per_value(plan.reductions.storage);
  std::uint64_t most = 0;
  for (Bucket const& bucket : different_buckets(plan.reductions, plan.layout))
    for (PlannedCollective const& step : plan.reductions.reduction_of(bucket, plan.layout))
      most = std::max(most, staging_of(plan, step, element_bytes));
  for (PlannedCollective const& start : plan.state_broadcasts)
    most = std::max(most, staging_of(plan, start, sizeof(float)));
  return most;
}

std::uint64_t pinned_gather_bytes(ShardPlan const& plan) {
  std::uint64_t most = 0;
  for (UnitGather const* const gather : different_gathers(plan.gathers))
    most = std::max(most, staging_of(plan, gather->planned, bytes_per_value(plan.layout.types.parameters)));
  return most;
}

std::vector<std::uint64_t> pinned_reductions(ShardPlan const& plan) {
  ReductionPlan const& reductions = plan.reductions;
  std::vector<std::uint64_t> bytes(at(reductions.in_flight), 0);
  if (plan.message_buffers != MessageBuffers::staged) return bytes;
  if (!reductions.by_priority) return std::vector(bytes.size(), pinned_reduction_bytes(plan));
  for (Index number = 0; number < reductions.in_flight; ++number) {
    BucketReduction const steps = reductions.reduction_of(reductions.buckets.bucket(number), plan.layout);
    bytes[at(number)] = staging_of(plan, steps.front(), bytes_per_value(reductions.storage));
  }
  return bytes;
}

std::vector<std::uint64_t> pinned_gathers(ShardPlan const& plan) {
  GatherPlan const& gathers = plan.gathers;
  std::vector<std::uint64_t> bytes(at(gathers.in_flight()), 0);
  if (plan.message_buffers != MessageBuffers::staged) return bytes;
  if (!gathers.by_priority) return std::vector(bytes.size(), pinned_gather_bytes(plan));
  for (std::size_t unit = 0; unit < gathers.of_unit.size(); ++unit)
    for (UnitGather const& slice : gathers.of_unit[unit])
      bytes[unit] += staging_of(plan, slice.planned, bytes_per_value(plan.layout.types.parameters));
  return bytes;
}

std::uint64_t pinned_message_bytes(ShardPlan const& plan, PreparedMessage const& message) {
  Index const sender = plan.pipeline.sender(message.sends, message.kind);
  return staging_of(plan, planned_message(plan.pipeline, plan.layout, message.kind, sender),
                    bytes_per_value(plan.layout.types.parameters));
}

std::uint64_t pinned_table_bytes(ShardPlan const& plan) {
  return plan.pipeline.table ? staging_of(plan, *plan.pipeline.table, bytes_per_value(plan.reductions.storage)) : 0;
}

std::uint64_t pinned_norm_bytes(ShardPlan const& plan) {
  return plan.gathers.norm ? staging_of(plan, *plan.gathers.norm, sizeof(double)) : 0;
}

} // namespace trainstone
