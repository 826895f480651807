#include "train/step_faults.hpp"

#include "comm/execution/control.hpp"

#include <limits>

namespace trainstone {

void StepFaults::after_forward(ExecutionSpace const& exec, Part part, std::int64_t step, StoredMatrix output) const {
  if (step == 0 || step != m_config.nan_step || to_string(part) != m_config.nan_part) return;
  with_storage(output.storage, [&]<class T>() {
    Vector<T> const first_value(output.as<T>().data(), 1);
    Kokkos::deep_copy(exec, first_value, from_float<T>(std::numeric_limits<float>::quiet_NaN()));
  });
}

void StepFaults::before_losses(ExecutionSpace const& exec, Communicator& communicator, std::int64_t step) const {
  if (m_config.extra_message) control_all_reduce(exec, communicator, Operation::sum, 1.0);
  if (step == m_config.order_step && m_rank == m_config.order_rank) barrier(communicator);
}

} // namespace trainstone
