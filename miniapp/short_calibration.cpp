#include "short_calibration.hpp"

#include "comm/measurement/calibration.hpp"
#include "report/machine_source.hpp"

#include <algorithm>

namespace trainstone {

std::string read_or_calibrate(std::string const& file, BuffersChoice const& buffers, std::uint64_t max_bytes,
                              Communicator& communicator, RankContext& context, FittedMachine& machine) {
  if (!file.empty()) {
    MachineSource source;
    collectively(communicator, [&] { source = read_machine_source(file, communicator.topology(), buffers); });
    machine = source.measured->fit;
    return source.description;
  }
  MemoryLedger ledger;
  CalibrationOptions quick;
  quick.max_bytes = std::max<std::uint64_t>(max_bytes, 4096);
  quick.factor = 4;
  quick.hold_out = false;
  quick.passes = 2;
  quick.shared_memory = buffers.shared_memory;
  machine = calibrate_communication(context.exec, communicator, ledger, quick).machine;
  return "a short calibration just before (--machine takes a better one from a file)";
}

} // namespace trainstone
