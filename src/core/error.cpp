#include "core/error.hpp"

#include <cstring>

namespace trainstone::Impl {

void fail_requirement(char const* file, int line, char const* condition, std::string const& message) {
  char const* const source = std::strstr(file, "src/");
  throw Error(fmt::format("{}:{}: requirement `{}` failed: {}", source ? source : file, line, condition, message));
}

} // namespace trainstone::Impl
