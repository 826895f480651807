#include "core/json_text.hpp"

namespace trainstone {

std::string utf8_text(std::string_view text) {
  return nlohmann::json::parse(json_line(nlohmann::json(text))).get<std::string>();
}

} // namespace trainstone
