#pragma once

// Numbers of things in texts.

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace trainstone {

/// "1 rank", "2 ranks"
inline std::string plural(std::int64_t count, std::string_view word) {
  return fmt::format("{} {}{}", count, word, count == 1 ? "" : "s");
}

} // namespace trainstone
