#pragma once

// The memory of the engine, before it exists: the training state, and what reductions and gathers need beside it. Pure
// functions of a plan. The engine allocates exactly this, and a run compares with what was counted.

#include "core/memory_plan.hpp"
#include "core/residence.hpp"
#include "parallel/plan/shard_plan.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace trainstone {

struct MemoryItem {
  MemoryCategory category;
  std::string name;
  std::uint64_t bytes;
  Residence residence = Residence::kernels; ///< kernels or host
};

/// The memory that the engine allocates: the training state, slots, and fresh gradients. What lies in files is none.
std::vector<MemoryItem> engine_memory(ShardPlan const& plan);
/// The memory that it takes from the caller's arena and from pinned memory.
std::vector<PlannedTensor> engine_buffers(ShardPlan const& plan);
std::vector<PlannedTensor> engine_pinned_buffers(ShardPlan const& plan);

/// Elements of scratch that reductions and gathers need, per one in flight.
Index reduction_scratch(ReductionPlan const& reductions, StateLayout const& layout);
/// The same of each one in flight: by priority, each bucket has its own, as large as it needs.
std::vector<Index> reduction_scratches(ReductionPlan const& reductions, StateLayout const& layout);
Index gather_scratch(GatherPlan const& gathers, StateLayout const& layout);
/// Of what the ranks of a tensor group bring together: the name and the elements of its scratch.
std::string exchange_scratch_name(SliceExchange exchange);
Index exchange_scratch(ShardPlan const& plan, SliceExchange exchange);

/// Bytes of pinned memory for staged messages: of each reduction or gather in flight, of the norm, of each prepared
/// message between stages, of the sum of the token table's gradient, and of what tensor ranks bring together.
std::uint64_t pinned_reduction_bytes(ShardPlan const& plan);
std::uint64_t pinned_gather_bytes(ShardPlan const& plan);
/// The same of each one in flight: by priority, of each bucket, and of all slices of each unit.
std::vector<std::uint64_t> pinned_reductions(ShardPlan const& plan);
std::vector<std::uint64_t> pinned_gathers(ShardPlan const& plan);
std::uint64_t pinned_norm_bytes(ShardPlan const& plan);
std::uint64_t pinned_message_bytes(ShardPlan const& plan, PreparedMessage const& message);
std::uint64_t pinned_table_bytes(ShardPlan const& plan);
std::uint64_t pinned_exchange_bytes(ShardPlan const& plan, SliceExchange exchange);

} // namespace trainstone
