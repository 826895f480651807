#pragma once

// Instructions that repeat. Consecutive instructions that only start kernels are a run of them. If a run comes again
// with all that its kernels depend on, its kernels are started by one call. Owns the graphs of the runs. Does not know
// how an instruction is computed.

#include "core/kernel_graph.hpp"
#include "model/gpt.hpp"
#include "parallel/program/instruction.hpp"

#include <functional>
#include <list>
#include <optional>
#include <vector>

namespace trainstone {

/// All that the kernels of a run depend on, beside what memory holds.
struct ComputedRun {
  struct Step {
    Instruction instruction;
    MicroBatch batch;
    bool operator==(Step const&) const = default;
  };
  std::vector<Step> steps;
  LossMode mode = LossMode::training;
  bool held_out = false;

  bool operator==(ComputedRun const&) const = default;
};

class RepeatedRuns {
public:
  using Compute = std::function<void(ComputedRun const&)>;

  /// \param[in] most  runs that are remembered, each with a graph on the device: no fewer than a step has, or none
  /// comes again in time. The one that was used longest ago is forgotten.
  explicit RepeatedRuns(std::size_t most) : m_most(most) {}

  /// Starts the kernels of a run on `exec`: the first time by compute(run), so that libraries and Kokkos allocate what
  /// they need; the second time they are recorded.
  void play(ExecutionSpace const& exec, ComputedRun run, Compute const& compute);

private:
  struct Known {
    ComputedRun run;
    std::optional<KernelGraph> graph = {};
  };
  std::size_t m_most;
  std::list<Known> m_known; ///< the latest last: a step goes through them in turn
};

} // namespace trainstone
