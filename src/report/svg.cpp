#include "report/svg.hpp"

#include <fmt/format.h>

namespace trainstone {

std::string escaped(std::string const& text) {
  std::string result;
  for (char const c : text) {
    if (c == '&')
      result += "&amp;";
    else if (c == '<')
      result += "&lt;";
    else if (c == '>')
      result += "&gt;";
    else if (c == '"')
      result += "&quot;";
    else if (c == '\'')
      result += "&#39;";
    else if (static_cast<unsigned char>(c) < ' ' && c != '\n' && c != '\t')
      result += '?';
    else
      result += c;
  }
  return result;
}

std::string text_at(double x, double y, std::string const& text, std::string const& style) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" {}>{}</text>\n", x, y, style, escaped(text));
}

double width_of(std::string const& text) {
  constexpr double character_width = 8.2;
  return character_width * static_cast<double>(text.size());
}

} // namespace trainstone
