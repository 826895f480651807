#include "parallel/engine/tensor_exchange.hpp"

#include "parallel/plan/engine_memory.hpp"

namespace trainstone {

namespace {

/// One of equal chunks.
StoredVector part_of(StoredVector const& data, Index number, Index chunks) {
  return data.part(number * (data.size / chunks), data.size / chunks);
}
Vector<double> part_of(Vector<double> const& data, Index number, Index chunks) {
  std::size_t const size = data.size() / static_cast<std::size_t>(chunks);
  return Vector<double>(data.data() + static_cast<std::size_t>(number) * size, size);
}

/// Memory as a vector of the type of `data`.
StoredVector like(StoredVector data, Vector<std::byte> memory) {
  data.data = memory.data();
  data.size = static_cast<Index>(memory.size() / bytes_per_value(data.storage));
  return data;
}
Vector<double> like(Vector<double> const&, Vector<std::byte> memory) {
  return Vector<double>(reinterpret_cast<double*>(memory.data()), memory.size() / sizeof(double));
}

} // namespace

TensorExchange::TensorExchange(ExecutionSpace const& exec, ExecutionSpace const& communication,
                               MeshCommunicators& communicators, ExecutionQueue& queue, MemoryLedger& ledger,
                               ShardPlan const& plan, Arena& buffers, PinnedMemory& pinned)
    : m_exec(exec),
      m_communication(communication),
      m_communicators(&communicators),
      m_queue(&queue),
      m_plan(&plan),
      m_memory(exec, plan.tensor.sharers() ? &communicators.of(*plan.tensor.sharers()) : nullptr, ledger,
               MemoryCategory::activations, "exchanged activations", Storage::fp32,
               static_cast<Index>(plan.tensor.memory_bytes / sizeof(float))) {
  for (auto const& [exchange, planned] : plan.tensor.exchanges)
    for (Index number = 0; number < planned.chunks; ++number) {
      Chunk const chunk{exchange, number};
      auto const bytes = exchange_scratch(plan, exchange) * static_cast<Index>(planned.element_bytes);
      m_scratch[chunk] = buffers.vector<std::byte>(exchange_scratch_name(exchange), bytes);
      m_staging[chunk] = pinned.take(pinned_exchange_bytes(plan, exchange));
    }
}

void TensorExchange::prepare(ExchangedVectors const& model) {
  StateLayout const& layout = m_plan->layout;
  for (auto const& [exchange, planned] : m_plan->tensor.exchanges) {
    Operation const operation = exchange == SliceExchange::loss_maximum ? Operation::max : Operation::sum;
    auto const prepare = [&](auto const& data) {
      for (Index number = 0; number < planned.chunks; ++number) {
        Chunk const chunk{exchange, number};
        m_exchanges.try_emplace(chunk, m_communication, m_communicators->of(planned.collective.axis),
                                schedule_of(planned.collective, layout.mesh, layout.rank), operation,
                                part_of(data, number, planned.chunks), like(data, m_scratch.at(chunk)),
                                ExecutionOptions{.segment = m_memory.segment(),
                                                 .pieces = planned.pieces,
                                                 .staging = m_staging.at(chunk),
                                                 .caller = &m_exec});
      }
    };
    std::visit(prepare, model.at(exchange));
  }
}

} // namespace trainstone
