#include "core/address_space.hpp"

#include <fstream>
#include <sys/resource.h>
#include <unistd.h>

namespace trainstone {

std::optional<std::uint64_t> address_space_left() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  std::uint64_t pages = 0; // that are mapped
  if (!(std::ifstream("/proc/self/statm") >> pages)) return std::nullopt;
  std::uint64_t const mapped = pages * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE)), all = limit.rlim_cur;
  return mapped < all ? all - mapped : 0;
}

} // namespace trainstone
