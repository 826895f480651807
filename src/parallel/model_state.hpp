#pragma once

// The state that training carries from step to step: parameters, gradients and AdamW's two moments, one flat vector
// each, laid out by the ParameterTable. Owns that memory, one allocation per category; gradients may lie in memory that
// the ranks of a node share. Today everything is replicated on every rank (data parallelism).

#include "comm/execution/shared_segment.hpp"
#include "core/memory.hpp"
#include "model/parameter_table.hpp"

#include <optional>

namespace trainstone {

/// What ModelState will allocate: 4 + 4 + 8 bytes per element of the table.
CategoryBytes model_state_bytes(ParameterTable const& table);

/// What shared gradients take beyond their bytes, among the buffers.
std::uint64_t shared_gradients_overhead(ParameterTable const& table);

class ModelState {
public:
  /// Allocates and zeroes all four vectors; waits for nothing. The ledger must outlive the object.
  ModelState(ExecutionSpace const& exec, MemoryLedger& ledger, ParameterTable const& table);
  /// The same with the gradients in a segment of the communicator's nodes. Collective.
  ModelState(ExecutionSpace const& exec, Communicator const& communicator, MemoryLedger& ledger,
             ParameterTable const& table);

  Vector<float> parameters() const { return m_parameters; }
  Vector<float> gradients() const { return m_gradients; }
  Vector<float> first_moment() const { return m_first_moment; }
  Vector<float> second_moment() const { return m_second_moment; }

  /// Where the gradients lie, if neighbours see them; else null.
  SharedSegment* shared_gradients() { return m_shared_gradients ? &*m_shared_gradients : nullptr; }

private:
  ModelState(ExecutionSpace const& exec, MemoryLedger& ledger, ParameterTable const& table,
             std::optional<SharedSegment> shared_gradients);

  std::optional<SharedSegment> m_shared_gradients;
  Allocation m_parameter_memory, m_gradient_memory, m_optimizer_memory;
  Vector<float> m_parameters, m_gradients, m_first_moment, m_second_moment;
};

} // namespace trainstone
