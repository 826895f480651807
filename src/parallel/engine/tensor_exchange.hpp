#pragma once

// What the ranks of a tensor group bring together while they compute. Owns the prepared collectives. Promises: an
// exchange only starts; the queue drives it. Owns the memory that they work in, which the model uses. Does not decide
// when.

#include "comm/execution/communicator.hpp"
#include "comm/execution/execution_queue.hpp"
#include "core/memory.hpp"
#include "core/views.hpp"
#include "model/activations.hpp"
#include "parallel/engine/mesh_communicators.hpp"
#include "parallel/engine/state_memory.hpp"
#include "parallel/plan/shard_plan.hpp"
#include "parallel/program/instruction.hpp"

#include <cstddef>
#include <map>
#include <span>
#include <utility>

namespace trainstone {

/// Where the model has what is brought together.
using ExchangedVectors = std::map<SliceExchange, ExchangedVector>;

class TensorExchange {
public:
  /// \param[in] exec           instance of the kernels that make and read what is brought together
  /// \param[in] communication  instance of the collectives
  /// \param[in] communicators  of the mesh: tensor ranks form lines
  /// Takes its part of engine_buffers(plan) from `buffers`, and of engine_pinned_buffers(plan) from `pinned`.
  /// Collective over the tensor group; everything referred to must outlive the object.
  TensorExchange(ExecutionSpace const& exec, ExecutionSpace const& communication, MeshCommunicators& communicators,
                 ExecutionQueue& queue, MemoryLedger& ledger, ShardPlan const& plan, Arena& buffers,
                 PinnedMemory& pinned);
  TensorExchange(TensorExchange const&) = delete;
  TensorExchange& operator=(TensorExchange const&) = delete;

  /// For what is brought together: ActivationSet::exchanged. On one node ranks may share it.
  Arena memory() { return m_memory.arena(); }
  /// Prepares all exchanges; once, before the first one. Collective. \param[in] model  in memory()
  void prepare(ExchangedVectors const& model);

  /// Of an instruction that exchanges, or waits for that.
  void start(Instruction const& exchange) { m_queue->start(execution(exchange)); }
  void wait(Instruction const& exchange) { m_queue->wait(execution(exchange)); }

private:
  using Chunk = std::pair<SliceExchange, Index>; ///< the number of the chunk of rows, of several

  Execution& execution(Instruction const& exchange) {
    return m_exchanges.at({exchange_of(exchange), number_of_chunk(exchange)});
  }

  ExecutionSpace m_exec, m_communication;
  MeshCommunicators* m_communicators;
  ExecutionQueue* m_queue;
  ShardPlan const* m_plan;
  StateMemory m_memory;
  std::map<Chunk, Vector<std::byte>> m_scratch;
  std::map<Chunk, std::span<std::byte>> m_staging;
  std::map<Chunk, Execution> m_exchanges;
};

} // namespace trainstone
