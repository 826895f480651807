#include "parallel/engine/tensor_exchange.hpp"

#include "parallel/plan/engine_memory.hpp"

namespace trainstone {

TensorExchange::TensorExchange(ExecutionSpace const& exec, ExecutionSpace const& communication, Communicator& line,
                               ExecutionQueue& queue, MemoryLedger& ledger, ShardPlan const& plan, Arena& buffers,
                               PinnedMemory& pinned)
    : m_exec(exec),
      m_communication(communication),
      m_line(&line),
      m_queue(&queue),
      m_plan(&plan),
      m_memory(exec, plan.tensor.sharers() ? &line : nullptr, ledger, MemoryCategory::activations, "sums over slices",
               Storage::fp32, static_cast<Index>(plan.tensor.memory_bytes / sizeof(float))) {
  for (auto const& [exchange, planned] : plan.tensor.exchanges) {
    Index const scratch = exchange_scratch(plan, exchange);
    std::string const name = exchange_scratch_name(exchange);
    switch (exchange) {
    case SliceExchange::sum: m_sum_scratch = take_vector(buffers, plan.tensor.sum_storage, name, scratch); break;
    case SliceExchange::loss_maximum: m_maximum_scratch = buffers.vector<float>(name, scratch); break;
    case SliceExchange::loss_sums: m_sums_scratch = buffers.vector<double>(name, scratch); break;
    }
    m_staging[exchange] = pinned.take(pinned_exchange_bytes(plan, exchange));
  }
}

void TensorExchange::prepare(SliceBuffers const& model) {
  StateLayout const& layout = m_plan->layout;
  auto const prepare = [&](SliceExchange exchange, Operation operation, auto const& data, auto const& scratch) {
    m_exchanges.try_emplace(
        exchange, m_communication, *m_line,
        schedule_of(m_plan->tensor.exchanges.at(exchange).collective, layout.mesh, layout.rank), operation, data,
        scratch, ExecutionOptions{.segment = m_memory.segment(), .staging = m_staging.at(exchange), .caller = &m_exec});
  };
  for (auto const& [exchange, planned] : m_plan->tensor.exchanges) switch (exchange) {
    case SliceExchange::sum: prepare(exchange, Operation::sum, model.sum, m_sum_scratch); break;
    case SliceExchange::loss_maximum: prepare(exchange, Operation::max, model.loss_maximum, m_maximum_scratch); break;
    case SliceExchange::loss_sums: prepare(exchange, Operation::sum, model.loss_sums, m_sums_scratch); break;
    }
}

} // namespace trainstone
