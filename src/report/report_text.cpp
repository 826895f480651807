#include "report/report_text.hpp"

#include <fmt/format.h>

namespace trainstone {

std::string seconds_text(double seconds) {
  ShownUnit const unit = unit_of_seconds(seconds);
  return fmt::format("{:.4g} {}", unit.factor * seconds, unit.name);
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
