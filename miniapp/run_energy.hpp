#pragma once

// Energy of a run's measured steps, on all hosts and devices that it uses. The first rank of a host reads the meters of
// the host, the first rank of a device that of the device.

#include "run_setup.hpp"

#include "core/energy.hpp"
#include "report/result.hpp"
#include "train/events.hpp"

#include <optional>

namespace trainstone {

class RunEnergy {
public:
  /// \param[in] completed  steps before this run's
  RunEnergy(PreparedRun const& run, std::int64_t completed, Rank rank);

  /// After every step of the run, before a checkpoint is written. Reads meters when the step before the measured ones
  /// has ended, every second from then on, and when the last measured step has ended, or the run before that: all ranks
  /// read after the same step. So checkpoints between measured steps are part of it, and the one at a run's end never
  /// is.
  void after(StepReport const& step);

  /// Between the first reading and the last. Nothing if there were no two, or no meter. Collective.
  std::optional<EnergyInfo> total(RankContext& context) const;

private:
  void begin(std::int64_t completed);

  MeasuredWindow m_window;
  bool m_reads_host, m_reads_device;
  std::string m_bus;
  std::optional<EnergySpan> m_span; ///< sums: the host's, the device's; in tokens
};

} // namespace trainstone
