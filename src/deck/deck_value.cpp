#include "deck/deck_value.hpp"

#include <fmt/format.h>

namespace trainstone {

namespace {

std::string quoted(std::string const& text) {
  std::string result = "\"";
  for (char const c : text) {
    if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      result += fmt::format("\\u{:04X}", static_cast<unsigned>(c));
    } else {
      result += c;
    }
  }
  return result + '"';
}

template <class T, class Convert>
std::string list(std::vector<T> const& values, Convert const& convert) {
  std::string result;
  for (T const& value : values) result += (result.empty() ? "" : ", ") + convert(value);
  return "[" + result + "]";
}

std::string number_text(double value) { return fmt::format("{}", value); }

} // namespace

std::string to_toml(DeckValue const& value) {
  struct Printer {
    std::string operator()(std::int64_t integer) const { return fmt::format("{}", integer); }
    std::string operator()(double number) const { return number_text(number); }
    std::string operator()(bool yes) const { return yes ? "true" : "false"; }
    std::string operator()(std::string const& words) const { return quoted(words); }
    std::string operator()(Quantity const& quantity) const { return quoted(to_string(quantity)); }
    std::string operator()(std::vector<double> const& numbers) const { return list(numbers, number_text); }
    std::string operator()(std::vector<std::string> const& texts) const { return list(texts, quoted); }
  };
  return std::visit(Printer{}, value);
}

} // namespace trainstone
