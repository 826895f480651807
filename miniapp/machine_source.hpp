#pragma once

// The machine that predictions are made for: from --machine FILE, or the one that is assumed. Owns the refusal of a
// file that lacks what the ranks need.

#include "comm/measurement/buffers_choice.hpp"
#include "comm/simulation/machine_model.hpp"
#include "report/machine_file.hpp"

#include <optional>
#include <string>

namespace trainstone {

struct MachineSource {
  MachineModel model;
  std::string description;                 ///< for headers of tables
  std::optional<MeasuredMachine> measured; ///< of a file

  /// Whether messages of so many bytes were not measured; an assumed machine is no measurement at all, and says so.
  bool extrapolates(Link link, double bytes) const {
    return measured && measured->fit.extrapolates_message(link, bytes);
  }
};

/// \param[in] path of --machine; empty: default_machine()
/// \param[in] buffers  of the ranks that run; nothing: ranks that are imagined, whose messages are the file's
/// \throws InputError if the file is none, or was measured where such ranks' messages or shared memory could not be, or
///         with other buffers: copies cost time, too
MachineSource read_machine_source(std::string const& path, Topology const& topology,
                                  std::optional<BuffersChoice> const& buffers = {});

} // namespace trainstone
