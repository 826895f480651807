#pragma once

// Energy that a machine's own meters tell: RAPL of processors and their memory, by the kernel's powercap files; NVML of
// a device, by the library that its driver brings, if there is one. Does not know of ranks: who reads which meter is
// the caller's. Meters that cannot be read (RAPL is root's on most systems) are none. Promises nothing rather than a
// wrong number: a meter that counts backwards has no energy.

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
  std::uint64_t last = 0;                             ///< after which it begins at 0 again; 0: it never does
};

/// Of this host's processors: packages, and memory where it has a meter of its own.
std::vector<EnergyMeter> host_energy_meters(std::filesystem::path const& powercap = "/sys/class/powercap");

/// \param[in] bus  PCI bus id of an NVIDIA device, as CUDA tells it
std::optional<EnergyMeter> device_energy_meter(std::string const& bus);

/// What several meters have counted together since it was made.
class EnergySum {
public:
  /// Reads them for the first time.
  explicit EnergySum(std::vector<EnergyMeter> meters);

  /// Reads them: more often than they begin at 0 again, which RAPL does after minutes at full power.
  void update();
  /// J up to the last update. Nothing if there are no meters, or if one could not be read or went back without having
  /// reached its end: its driver was started again, say.
  std::optional<double> joules() const;

private:
  std::vector<EnergyMeter> m_meters;
  std::vector<std::uint64_t> m_before; ///< by meter
  std::uint64_t m_microjoules = 0;
  bool m_complete;
};

/// Energy of work that is done in pieces, by several sums that are read at the same moments: when it begins, now and
/// then after a piece, and when it has ended, which only the caller knows.
class EnergySpan {
public:
  /// Begins now. \param[in] interval  s between readings, at least: RAPL begins at 0 again after minutes
  explicit EnergySpan(std::vector<EnergySum> sums, double interval = 1);

  /// A piece is done; `amount` says how much work it was, in the caller's unit.
  void add(std::int64_t amount);
  /// Reads once more if anything was added since the last reading.
  void finish();

  /// Of the sum with that number, up to the last reading, as are the two below.
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
