#pragma once

// What the MPI library under a measurement was told, and what carries its messages. For headers of tables.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trainstone {

/// The control variables that the environment of this process sets: MPICH's (and its descendants'), Open MPI's, and
/// those of the libraries under them; by name.
std::vector<std::pair<std::string, std::string>> mpi_control_variables();

/// The transport libraries that MPI has loaded into this process ("libuct_cma", "libxpmem", "libfabric"), by name:
/// which ways between processes it could choose from. UCX tells no program which of them it chose.
std::vector<std::string> loaded_transports();
/// The same of a text like that of /proc/self/maps.
std::vector<std::string> loaded_transports(std::string_view maps);

} // namespace trainstone
