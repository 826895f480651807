#pragma once

// Energy of a run's measured steps, on all hosts and devices that it uses. The first rank of a host reads the meters of
// the host, the first rank of a device that of the device.

#include "run_setup.hpp"

#include "core/energy.hpp"
#include "result/result.hpp"
#include "train/events.hpp"

#include <optional>

namespace trainstone {

class RunEnergy {
public:
  /// \param[in] completed  steps before this run's
  RunEnergy(PreparedRun const& run, std::int64_t completed, Rank rank);

  /// Call this after every step of the run, before a checkpoint is written. Reads meters after the last step before the
  /// measured ones, every second from then on, and after the last measured step or the end of the run. All ranks read
  /// after the same step. So the energy includes checkpoints between measured steps, but never the checkpoint at the
  /// end of a run. Where workers do not wait for each other, steps are known only in pauses: then nothing is read.
  void after(StepReport const& step);

  /// The energy between the first and the last reading. Nothing if there were not two readings, or no meter.
  /// Collective.
  std::optional<EnergyInfo> total(RankContext& context) const;

private:
  void begin(std::int64_t completed);

  MeasuredWindow m_window;
  bool m_reads_host, m_reads_device;
  std::string m_bus;
  std::optional<EnergySpan> m_span; ///< sums: the host's, the device's; in tokens
};

} // namespace trainstone
