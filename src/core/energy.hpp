#pragma once

// Energy from a machine's own meters. RAPL measures processors and their memory, through the kernel's powercap files.
// NVML measures a device, through the library of its driver, if there is one. Does not know about ranks: the caller
// decides who reads which meter. A meter that cannot be read (on most systems only root reads RAPL) counts as missing.
// Promises no number rather than a wrong number: a meter that counts backwards gives no energy.

#include "core/clock.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace trainstone {

struct EnergyMeter {
  std::string name;
  std::function<std::optional<std::uint64_t>()> read; ///< microjoules since some moment; nothing: not any more
  std::uint64_t last = 0;                             ///< the value before it begins at 0 again; 0: it never does
};

/// Meters of this host's processors: packages, and memory if it has its own meter.
std::vector<EnergyMeter> host_energy_meters(std::filesystem::path const& powercap = "/sys/class/powercap");

/// \param[in] bus  PCI bus id of an NVIDIA device, as CUDA tells it
std::optional<EnergyMeter> device_energy_meter(std::string const& bus);

/// The sum of what several meters have counted since this object was made.
class EnergySum {
public:
  /// Reads the meters for the first time.
  explicit EnergySum(std::vector<EnergyMeter> meters);

  /// Reads the meters. Call this before a meter begins at 0 again: RAPL does so after minutes at full power.
  void update();
  /// J up to the last update. Nothing if there are no meters, if a meter could not be read, or if a meter went
  /// backwards before it reached its end (because its driver was restarted, for example).
  std::optional<double> joules() const;

private:
  std::vector<EnergyMeter> m_meters;
  std::vector<std::uint64_t> m_before; ///< by meter
  std::uint64_t m_microjoules = 0;
  bool m_complete;
};

/// Energy of work that is done in pieces. Several sums are read at the same moments: when the work begins, after some
/// of the pieces, and when the work has ended. Only the caller knows when it has ended.
class EnergySpan {
public:
  /// Begins now. \param[in] interval  s between readings, at least: RAPL begins at 0 again after minutes
  explicit EnergySpan(std::vector<EnergySum> sums, double interval = 1);

  /// A piece is done; `amount` says how much work it was, in the caller's unit.
  void add(std::int64_t amount);
  /// Reads once more if anything was added since the last reading.
  void finish();

  /// Energy of the sum with that number. This and the two functions below count up to the last reading.
  std::optional<double> joules(std::size_t sum) const { return m_sums[sum].joules(); }
  double seconds() const { return seconds_between(m_begin, m_last); }
  std::int64_t amount() const { return m_amount_read; }

private:
  void read();

  std::vector<EnergySum> m_sums;
  double m_interval;
  SteadyTime m_begin, m_last;
  std::int64_t m_amount = 0, m_amount_read = 0;
};

} // namespace trainstone
