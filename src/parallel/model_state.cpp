#include "parallel/model_state.hpp"

#include <utility>

namespace trainstone {

namespace {
std::uint64_t vector_bytes(ParameterTable const& table) {
  return Arena::footprint(static_cast<std::uint64_t>(table.size()) * sizeof(float));
}
} // namespace

CategoryBytes model_state_bytes(ParameterTable const& table) {
  CategoryBytes bytes;
  bytes[MemoryCategory::parameters] = vector_bytes(table);
  bytes[MemoryCategory::gradients] = vector_bytes(table);
  bytes[MemoryCategory::optimizer] = 2 * vector_bytes(table);
  return bytes;
}

std::uint64_t shared_gradients_overhead(ParameterTable const& table) {
  return SharedSegment::overhead(vector_bytes(table));
}

ModelState::ModelState(ExecutionSpace const& exec, MemoryLedger& ledger, ParameterTable const& table)
    : ModelState(exec, ledger, table, std::nullopt) {}

ModelState::ModelState(ExecutionSpace const& exec, Communicator const& communicator, MemoryLedger& ledger,
                       ParameterTable const& table)
    : ModelState(exec, ledger, table,
                 SharedSegment(communicator, ledger, MemoryCategory::gradients, "gradients", vector_bytes(table))) {}

ModelState::ModelState(ExecutionSpace const& exec, MemoryLedger& ledger, ParameterTable const& table,
                       std::optional<SharedSegment> shared_gradients)
    : m_shared_gradients(std::move(shared_gradients)),
      m_parameter_memory(ledger, MemoryCategory::parameters, "parameters", vector_bytes(table)),
      m_gradient_memory(m_shared_gradients
                            ? Allocation()
                            : Allocation(ledger, MemoryCategory::gradients, "gradients", vector_bytes(table))),
      m_optimizer_memory(ledger, MemoryCategory::optimizer, "optimizer", 2 * vector_bytes(table)) {
  Arena parameters(m_parameter_memory.bytes());
  Arena gradients(m_shared_gradients ? m_shared_gradients->bytes() : m_gradient_memory.bytes());
  Arena optimizer(m_optimizer_memory.bytes());
  m_parameters = parameters.vector<float>("parameters", table.size());
  m_gradients = gradients.vector<float>("gradients", table.size());
  m_first_moment = optimizer.vector<float>("first moment", table.size());
  m_second_moment = optimizer.vector<float>("second moment", table.size());
  for (Vector<float> const& state : {m_parameters, m_gradients, m_first_moment, m_second_moment})
    Kokkos::deep_copy(exec, state, 0.0f);
}

} // namespace trainstone
