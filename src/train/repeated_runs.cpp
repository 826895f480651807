#include "train/repeated_runs.hpp"

#include <algorithm>
#include <utility>

namespace trainstone {

void RepeatedRuns::play(ExecutionSpace const& exec, ComputedRun run, Compute const& compute) {
  auto const found = std::ranges::find(m_known, run, &Known::run);
  if (found == m_known.end()) {
    compute(run);
    for (Known& known : m_known) known.graph.reset(); // Kokkos may have exchanged its scratch for this run
    m_known.push_back({std::move(run)});
    if (m_known.size() > m_most) m_known.pop_front();
    return;
  }
  m_known.splice(m_known.end(), m_known, found); // found stays where it is in memory
  if (!found->graph) found->graph.emplace(exec, [&known = found->run, compute] { compute(known); });
  found->graph->start(exec);
}

} // namespace trainstone
