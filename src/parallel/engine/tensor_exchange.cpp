#include "parallel/engine/tensor_exchange.hpp"

#include "parallel/plan/engine_memory.hpp"

namespace trainstone {

namespace {

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

TensorExchange::TensorExchange(ExecutionSpace const& exec, ExecutionSpace const& communication, Communicator& line,
                               ExecutionQueue& queue, MemoryLedger& ledger, ShardPlan const& plan, Arena& buffers,
                               PinnedMemory& pinned)
    : m_exec(exec),
      m_communication(communication),
      m_line(&line),
      m_queue(&queue),
      m_plan(&plan),
      m_memory(exec, plan.tensor.sharers() ? &line : nullptr, ledger, MemoryCategory::activations,
               "exchanged activations", Storage::fp32, static_cast<Index>(plan.tensor.memory_bytes / sizeof(float))) {
  for (auto const& [exchange, planned] : plan.tensor.exchanges) {
    auto const bytes = exchange_scratch(plan, exchange) * static_cast<Index>(planned.element_bytes);
    m_scratch[exchange] = buffers.vector<std::byte>(exchange_scratch_name(exchange), bytes);
    m_staging[exchange] = pinned.take(pinned_exchange_bytes(plan, exchange));
  }
}

void TensorExchange::prepare(ExchangedVectors const& model) {
  StateLayout const& layout = m_plan->layout;
  for (auto const& [exchange, planned] : m_plan->tensor.exchanges) {
    Operation const operation = exchange == SliceExchange::loss_maximum ? Operation::max : Operation::sum;
    auto const prepare = [&](auto const& data) {
      m_exchanges.try_emplace(exchange, m_communication, *m_line,
                              schedule_of(planned.collective, layout.mesh, layout.rank), operation, data,
                              like(data, m_scratch.at(exchange)),
                              ExecutionOptions{.segment = m_memory.segment(),
                                               .pieces = planned.pieces,
                                               .staging = m_staging.at(exchange),
                                               .caller = &m_exec});
    };
    std::visit(prepare, model.at(exchange));
  }
}

} // namespace trainstone
