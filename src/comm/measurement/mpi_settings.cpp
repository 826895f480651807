#include "comm/measurement/mpi_settings.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <sstream>

namespace trainstone {

namespace {

constexpr std::array<std::string_view, 6> prefixes{"MPICH_", "MPIR_", "OMPI_MCA_", "I_MPI_", "UCX_", "FI_"};

} // namespace

std::vector<std::pair<std::string, std::string>> mpi_control_variables() {
  std::vector<std::pair<std::string, std::string>> settings;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    std::string_view const text(*entry);
    std::size_t const end = text.find('=');
    bool const ours = std::ranges::any_of(prefixes, [&](std::string_view prefix) { return text.starts_with(prefix); });
    if (ours && end != text.npos) settings.emplace_back(text.substr(0, end), text.substr(end + 1));
  }
  std::ranges::sort(settings);
  return settings;
}

std::vector<std::string> loaded_transports(std::string_view maps) {
  std::vector<std::string> found;
  while (!maps.empty()) {
    std::string_view const line = maps.substr(0, maps.find('\n'));
    maps.remove_prefix(std::min(maps.size(), line.size() + 1));
    for (std::string_view const prefix : {"/libuct_", "/libfabric", "/libxpmem", "/libibverbs"}) {
      std::size_t const begin = line.rfind(prefix);
      if (begin == line.npos) continue;
      std::string_view const file = line.substr(begin + 1);
      std::string const name(file.substr(0, file.find('.')));
      if (std::ranges::find(found, name) == found.end()) found.push_back(name);
    }
  }
  std::ranges::sort(found);
  return found;
}

std::vector<std::string> loaded_transports() {
  std::ifstream const maps("/proc/self/maps");
  std::ostringstream text;
  text << maps.rdbuf();
  return loaded_transports(text.str());
}

} // namespace trainstone
