#pragma once

// The machine for predictions: from --machine FILE, or an assumed one. Refuses a file that lacks curves that the ranks
// need.

#include "comm/measurement/buffers_choice.hpp"
#include "comm/simulation/machine_model.hpp"
#include "result/machine_file.hpp"
#include "train/plan/run_config.hpp"

#include <optional>
#include <string>

namespace trainstone {

struct MachineSource {
  MachineModel model;
  std::string description;                 ///< for headers of tables
  std::optional<MeasuredMachine> measured; ///< of a file

  /// Whether the size of a message is outside of the measured sizes. An assumed machine was not measured, and says so.
  bool extrapolates(Link link, double bytes) const {
    return measured && measured->fit.extrapolates_message(link, bytes);
  }
};

/// \param[in] path of --machine; empty: default_machine()
/// \param[in] buffers  buffers of the running ranks; nothing: ranks are imagined, and use the buffers of the file
/// \throws InputError if the file is not a machine file, if messages or shared memory of such ranks were not measured,
/// or if it was measured with other buffers, because copies cost time, too
MachineSource read_machine_source(std::string const& path, Topology const& topology,
                                  std::optional<BuffersChoice> const& buffers = {});
/// As above, of a file that was read.
MachineSource machine_source(std::string const& path, MeasuredMachine measured, Topology const& topology,
                             std::optional<BuffersChoice> const& buffers = {});

/// The ranks of a run that is imagined: in blocks on `nodes` nodes, or on those that the deck emulates.
/// \param[in] nodes  of --nodes, 1 if it was not given     \throws InputError if both are given, or nodes exceed ranks
Topology imagined_topology(RunConfig const& config, std::int64_t ranks, std::int64_t nodes);

/// Why the machine's file has no times of parts for this run; empty if it has. \param[in] machine  of a file
std::string missing_parts(MachineSource const& machine, RunConfig const& config);

} // namespace trainstone
