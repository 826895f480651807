#include "core/launch.hpp"

namespace trainstone {

DelayPoint& delay_point() {
  static DelayPoint instance;
  return instance;
}

LaunchObserver& launch_observer() {
  static LaunchObserver instance;
  return instance;
}

void Impl::count_launch(Kernel const& kernel, ExecutionSpace const& exec) {
  count_launch(kernel);
  if (launch_observer()) launch_observer()(kernel.label, exec);
}

void Impl::count_launch(Kernel const& kernel) {
  Counters& count = counters();
  ++count.launches;
  count.flops[kernel.phase] += kernel.flops;
  count.bytes[kernel.phase] += kernel.bytes;
  if (delay_point()) delay_point()(kernel.label);
}

} // namespace trainstone
