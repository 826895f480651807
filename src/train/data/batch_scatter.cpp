#include "train/data/batch_scatter.hpp"

#include "comm/algorithms/registry.hpp"

#include <algorithm>

namespace trainstone {

BatchScatter::BatchScatter(ExecutionSpace const& exec, Communicator& communicator, RunPlan const& plan, Arena& data,
                           PinnedMemory& mirrors)
    : m_layout(&plan.parallel.layout),
      m_batches(data, mirrors, "micro-batches of all ranks", plan.batch_scatter.value().elements()),
      m_scatter(exec, communicator, make_schedule(*plan.batch_scatter, batch_scatter_algorithm, plan.rank),
                Operation::sum, Vector<std::int32_t>(m_batches.values().data(), m_batches.values().size()),
                Vector<std::int32_t>(), {.on_host = true}) {}

BatchSource BatchScatter::source(BatchSource const& all, Index own_micro_batch) {
  return [this, &all, own_micro_batch](std::int64_t batch, Index, std::span<std::int32_t> inputs,
                                       std::span<std::int32_t> targets) {
    std::span<std::int32_t> const batches = m_batches.values();
    auto const begin = [&](Rank rank) { return static_cast<std::size_t>(rank) * 2 * inputs.size(); };
    if (m_layout->rank == 0) {
      for (Rank rank = 0; rank < m_layout->mesh.ranks(); ++rank)
        all(batch, m_layout->micro_batch(own_micro_batch, rank), batches.subspan(begin(rank), inputs.size()),
            batches.subspan(begin(rank) + inputs.size(), targets.size()));
    }
    m_scatter.run();
    auto const own = batches.subspan(begin(m_layout->rank), 2 * inputs.size());
    std::ranges::copy(own.first(inputs.size()), inputs.begin());
    std::ranges::copy(own.last(targets.size()), targets.begin());
  };
}

} // namespace trainstone
