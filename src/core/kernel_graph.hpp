#pragma once

// Kernels that the host starts by one call. Owns the device's graph of them. A graph holds the arguments that the
// kernels had when it was recorded, and the address of Kokkos' scratch of then: kernels that want more scratch end its
// use. Where kernels run on the host, a graph is the function that starts them, which is called again. Promises:
// starting a graph computes what starting its kernels one by one does, and counts as many launches, FLOPs and bytes.
// Does not know what the kernels are.

#include "core/counters.hpp"
#include "core/views.hpp"

#include <cstdint>
#include <functional>
#include <memory>

namespace trainstone {

class KernelGraph {
public:
  /// Records what `start` starts on `exec`: kernels and copies on the device, and nothing that waits. It has started
  /// the same before, so that it allocates nothing. Nothing runs; nothing is counted.
  /// \throws Error  if the device cannot record one of the calls
  KernelGraph(ExecutionSpace const& exec, std::function<void()> start);

  /// Starts the kernels on an instance, behind what is enqueued there. Does not wait.
  void start(ExecutionSpace const& exec) const;

private:
  std::function<void()> m_start;    ///< where kernels run on the host
  std::shared_ptr<void> m_recorded; ///< the device's
  Counters m_counted = {};          ///< by the kernels, where they run on a device
};

/// Since the process began: graphs that were started, and kernels that these calls started. The host has started other
/// kernels one by one.
struct StartedGraphs {
  std::uint64_t graphs = 0, kernels = 0;
};
StartedGraphs started_graphs();

/// Whether kernels may be started by graphs now. Not while each is timed on its own, delayed or watched.
bool may_start_graphs();

} // namespace trainstone
