#pragma once

// Measures what communication costs on the ranks of a communicator and fits the curves that schedules are priced with.
// Owns which probes run at which sizes and how their times become costs. Promises: probes run interleaved, so that
// what changes on the machine meets all of them; sizes between the fitted ones are held out, to tell how good the
// fit is; all ranks return the same. Writes no file (result/machine_file.hpp).

#include "comm/execution/communicator.hpp"
#include "comm/measurement/collective_timing.hpp"
#include "comm/prediction/fitted_machine.hpp"
#include "core/memory.hpp"
#include "core/views.hpp"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace trainstone {

struct CalibrationOptions {
  std::uint64_t max_bytes = 64 << 20; ///< of one message
  std::uint64_t factor = 2;           ///< from one fitted size to the next, from 8 bytes on
  bool hold_out = true;               ///< measure sizes in between, too
  int passes = 6;                     ///< over all sizes, so that what disturbs for seconds meets them all alike
  TimingOptions timing{.warmup_calls = 2, .samples = 4, .sample_seconds = 1e-3}; ///< per pass
  bool node_ports = false;   ///< find out whether the ranks of a node share ports; not where nodes share cores
  int known_node_ports = 0;  ///< above 0: what was found earlier, which takes the place of what is found now
  bool shared_memory = true; ///< measure in the node's shared memory, and what that costs; else messages alone
};

/// The measured costs that one curve comes from.
struct CalibratedCurve {
  std::string name; ///< as named_curves has it
  std::vector<TimeSample> fitted;
  std::vector<TimeSample> held_out; ///< not seen by the fit
};

struct Calibration {
  FittedMachine machine;
  std::vector<CalibratedCurve> curves;
};

/// Collective over the communicator; with one rank there is nothing but copies. Messages are measured as its buffers
/// are. Memory is entered in the ledger: three times max_bytes, and pinned memory for staged messages.
Calibration calibrate_communication(ExecutionSpace const& exec, Communicator& communicator, MemoryLedger& ledger,
                                    CalibrationOptions const& options);

/// Times of now divided by the times of `machine`: by curve (and "node_barrier"), medians over a few small sizes. A
/// curve that one of the two does not know is left out. Takes a fraction of a second. It finds out whether the machine
/// has changed its state since (virtual cores that were moved, other clock rates, other programs). Collective.
/// \param[in] shared_memory as of CalibrationOptions
std::vector<std::pair<std::string, double>> drift(ExecutionSpace const& exec, Communicator& communicator,
                                                  FittedMachine const& machine, bool shared_memory);

} // namespace trainstone
