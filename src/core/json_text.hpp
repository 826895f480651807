#pragma once

// JSON as text. Owns the one rule for text that is no UTF-8: file names, variables of the environment and names of
// hosts may hold any bytes, and JSON holds UTF-8 alone, so that what is no UTF-8 becomes U+FFFD. Promises: no text of a
// user keeps a file from being written. Every file and message of JSON is made here (ci/check-layers).

#include <nlohmann/json.hpp>

#include <string>
#include <string_view>

namespace trainstone {

/// A file's content: indented, with a line break at its end.
template <class Json>
std::string json_text(Json const& value) {
  return value.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

/// On one line, without a line break. \param[in] ascii  whether all other characters are escaped
template <class Json>
std::string json_line(Json const& value, bool ascii = false) {
  return value.dump(-1, ' ', ascii, Json::error_handler_t::replace);
}

/// The text as it is read back from JSON: for values that are compared with such.
std::string utf8_text(std::string_view text);

} // namespace trainstone
