#pragma once

// A machine as it was measured: a MachineModel whose curves know from which sizes they come. Knows which curves exist:
// after a measurement on one node there is none for messages between nodes. Does not measure and does not read files
// (result/machine_file.hpp).

#include "comm/prediction/machine_fit.hpp"

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trainstone {

/// A machine as measured: curves are absent where nothing was measured (messages between nodes on a single node).
struct FittedMachine {
  std::array<std::optional<FittedCurve>, link_count> message;
  std::array<std::optional<FittedCurve>, link_count> one_way;
  std::array<std::optional<double>, link_count> overlap; ///< share of local work that messages hide
  std::optional<FittedCurve> reduce;
  std::optional<FittedCurve> copy;
  std::optional<FittedCurve> combine_to_own;
  std::optional<FittedCurve> combine_to_all;
  std::optional<FittedCurve> fetch;
  std::optional<FittedCurve> push;    ///< absent in files of programs that did not push: as a fetch then
  std::optional<double> node_barrier; ///< seconds
  int ports = 1;
  int node_ports = 0; ///< 0: ranks of a node do not share ports

  /// The model for prices. Moves that were not measured take no time in it: ask missing_for() first.
  MachineModel model() const;
  /// The moves that schedules on such ranks may use and that were not measured: "messages between nodes". Empty if all
  /// were measured.
  std::string missing_for(Topology const& topology, bool shared_memory) const;
  /// Whether the size of a message is outside of the sizes that were measured on that link.
  bool extrapolates_message(Link link, double bytes) const;
};

/// The curves of a machine by name, for code that prints, reads and writes all of them.
struct NamedCurve {
  std::string_view name; ///< "message_intra": as files and tables write it
  std::optional<FittedCurve>* curve;
};
std::vector<NamedCurve> named_curves(FittedMachine& machine);

} // namespace trainstone
