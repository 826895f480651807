#include "core/launch.hpp"

#include "core/clock.hpp"

namespace trainstone {

DelayPoint& delay_point() {
  static constinit DelayPoint instance;
  return instance;
}

void reach_delay_point(char const* label) {
  if (delay_point()) delay_point()(label);
}

KernelEnd& kernel_end() {
  static constinit KernelEnd instance;
  return instance;
}

LaunchObserver& launch_observer() {
  static constinit LaunchObserver instance;
  return instance;
}

BetweenLaunches& between_launches() {
  static constinit thread_local BetweenLaunches instance;
  return instance;
}

void Impl::call_between_launches() {
  thread_local bool is_called = false;
  if (is_called || !between_launches() || PhaseTimer::is_running()) return;
  struct Called {
    Called() { is_called = true; }
    ~Called() { is_called = false; }
  } const called;
  between_launches()();
}

bool Impl::kernels_are_timed() { return kernel_table() || kernel_end(); }

void Impl::end_kernel(Kernel const& kernel, ExecutionSpace const& exec, std::chrono::steady_clock::time_point start) {
  if constexpr (!launches_wait) exec.fence("trainstone::core::launch: every kernel is timed on its own");
  if (kernel_end()) kernel_end()(kernel.label, seconds_since(start));
  if (!kernel_table()) return;
  double const seconds = seconds_since(start); // before a row is looked for, or made, which is no part of the kernel
  KernelTimes& times = (*kernel_table())[kernel.label];
  ++times.launches;
  times.flops += kernel.flops;
  times.bytes += kernel.bytes;
  times.seconds += seconds;
}

void Impl::count_launch(Kernel const& kernel, ExecutionSpace const& exec) {
  count_launch(kernel);
  if (launch_observer()) launch_observer()(kernel.label, exec);
}

void Impl::count_launch(Kernel const& kernel) {
  Counters& count = counters();
  ++count.launches[kernel.phase];
  count.flops[kernel.phase] += kernel.flops;
  count.bytes[kernel.phase] += kernel.bytes;
  reach_delay_point(kernel.label);
}

} // namespace trainstone
