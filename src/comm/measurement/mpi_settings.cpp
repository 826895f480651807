#include "comm/measurement/mpi_settings.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <string_view>

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

} // namespace trainstone
