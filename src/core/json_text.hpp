#pragma once

// JSON as text. Owns the rule for text that is not UTF-8. File names, environment variables and host names may hold any
// bytes, but JSON holds only UTF-8, so other bytes become U+FFFD. Promises: no text of a user keeps a file from being
// written. Every file and message of JSON is made here (ci/check-layers enforces it).

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

/// The text as a reader gets it back from JSON. For values that are compared with text from JSON.
std::string utf8_text(std::string_view text);

} // namespace trainstone
