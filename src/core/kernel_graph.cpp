#include "core/kernel_graph.hpp"

#include "core/cuda_check.hpp"
#include "core/error.hpp"
#include "core/launch.hpp"

#include <utility>

namespace trainstone {

namespace {

StartedGraphs& started() {
  static StartedGraphs instance;
  return instance;
}

#ifdef KOKKOS_ENABLE_CUDA

/// Other threads may call the device meanwhile.
std::shared_ptr<void> record(ExecutionSpace const& exec, std::function<void()> const& start) {
  check_cuda(cudaStreamBeginCapture(exec.cuda_stream(), cudaStreamCaptureModeRelaxed), "cudaStreamBeginCapture");
  cudaGraph_t graph = nullptr;
  try {
    start();
  } catch (...) {
    if (cudaStreamEndCapture(exec.cuda_stream(), &graph) != cudaSuccess) static_cast<void>(cudaGetLastError());
    if (graph) cudaGraphDestroy(graph);
    throw;
  }
  check_cuda(cudaStreamEndCapture(exec.cuda_stream(), &graph), "cudaStreamEndCapture");
  cudaGraphExec_t recorded = nullptr;
  cudaError_t const code = cudaGraphInstantiate(&recorded, graph, 0);
  cudaGraphDestroy(graph);
  check_cuda(code, "cudaGraphInstantiate");
  return {recorded, [](void* made) { cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(made)); }};
}

void start_recorded(ExecutionSpace const& exec, void* recorded) {
  check_cuda(cudaGraphLaunch(static_cast<cudaGraphExec_t>(recorded), exec.cuda_stream()), "cudaGraphLaunch");
}

#else

std::shared_ptr<void> record(ExecutionSpace const&, std::function<void()> const&) { return nullptr; }
void start_recorded(ExecutionSpace const&, void*) {}

#endif

} // namespace

KernelGraph::KernelGraph(ExecutionSpace const& exec, std::function<void()> start) {
  if constexpr (launches_wait) {
    m_start = std::move(start);
  } else {
    BetweenLaunches::Scoped const alone(between_launches(), nullptr); // what goes on beside them is not recorded
    ThreadCounters const apart(m_counted);
    m_recorded = record(exec, start);
  }
}

void KernelGraph::start(ExecutionSpace const& exec) const {
  std::uint64_t const before = total_launches(counters());
  if constexpr (launches_wait) {
    m_start();
  } else {
    add_work(m_counted);
    start_recorded(exec, m_recorded.get());
  }
  ++started().graphs;
  started().kernels += total_launches(counters()) - before;
  Impl::call_between_launches();
}

StartedGraphs started_graphs() { return started(); }

bool may_start_graphs() {
  return !Impl::kernels_are_timed() && !delay_point() && !launch_observer() && !Kokkos::Tools::profileLibraryLoaded();
}

} // namespace trainstone
