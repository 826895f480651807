#pragma once

// What the MPI library under a measurement was told. For headers of tables.

#include <string>
#include <utility>
#include <vector>

namespace trainstone {

/// The control variables that the environment of this process sets: MPICH's (and its descendants'), Open MPI's, and
/// those of the libraries under them; by name.
std::vector<std::pair<std::string, std::string>> mpi_control_variables();

} // namespace trainstone
