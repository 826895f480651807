#include "parallel/plan/tensor_plan.hpp"

#include "core/memory_plan.hpp"

namespace trainstone {

TensorPlan make_tensor_plan(AlgorithmChoice const& choice, StateLayout const& layout, PartTable const& parts,
                            Extents stream) {
  TensorPlan plan;
  GptOptions const& options = parts.options();
  plan.sum_storage = storage_of(Activation::partial, options, layout.types.parameters);
  if (layout.mesh.tensor == 1) return plan;
  Topology const line = layout.line(Axis::tensor);
  auto const add = [&](SliceExchange exchange, Index elements, std::size_t element_bytes, Index rows = 1) {
    plan.memory_bytes += memory_footprint(static_cast<std::uint64_t>(rows * elements) * element_bytes);
    plan.exchanges.emplace(
        exchange, PlannedExchange{planned_collective(choice, Axis::tensor, line, Collective::all_reduce, elements),
                                  element_bytes});
  };
  add(SliceExchange::sum, stream.elements(), bytes_per_value(plan.sum_storage));
  if (!parts.has_head()) return plan;
  Index const rows = stream.rows / options.loss_chunks;
  add(SliceExchange::loss_maximum, rows, sizeof(float));
  add(SliceExchange::loss_sums, 2 * rows, sizeof(double), options.slices.count()); // the slices here are added first
  return plan;
}

std::optional<Axis> TensorPlan::sharers() const {
  return exchanges.empty() ? std::nullopt : sharers_of(exchanges.at(SliceExchange::sum).collective);
}

} // namespace trainstone
