#include "report/report_text.hpp"

#include "report/output.hpp"

#include <fmt/format.h>

namespace trainstone {

std::string seconds_text(double seconds) {
  ShownUnit const unit = unit_of_seconds(seconds);
  return fmt::format("{:.4g} {}", unit.factor * seconds, unit.name);
}

std::string file_name_of(std::string const& text) {
  constexpr std::size_t most = 100; // file systems allow 255, and more is added
  std::string name;
  for (char const c : text.substr(0, most)) {
    bool const plain = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    name += plain ? c : c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : '-';
  }
  return name;
}

Tone tone_of(Outcome outcome) {
  switch (outcome) {
  case Outcome::valid: return Tone::good;
  case Outcome::invalid: return Tone::bad;
  default: return Tone::notice;
  }
}

std::string rate_text(Result const& result) {
  if (!result.tokens_per_second) return "none";
  return fmt::format("{}: {:.6e} tokens/s", rate_name(result.outcome), result.tokens_per_second->value);
}

} // namespace trainstone
