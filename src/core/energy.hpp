#pragma once

// Energy that a machine's own meters tell: RAPL of processors and their memory, by the kernel's powercap files; NVML of
// a device, by the library that its driver brings, if there is one. Does not know of ranks: who reads which meter is
// the caller's. Meters that cannot be read (RAPL is root's on most systems) are none.

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
  /// J up to the last update. Nothing if there are no meters, or one could not be read.
  std::optional<double> joules() const;

private:
  std::vector<EnergyMeter> m_meters;
  std::vector<std::uint64_t> m_before; ///< by meter
  std::uint64_t m_microjoules = 0;
  bool m_complete;
};

} // namespace trainstone
