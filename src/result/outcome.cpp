#include "result/outcome.hpp"

#include "core/error.hpp"

#include <algorithm>

namespace trainstone {

std::string to_string(Outcome outcome) {
  switch (outcome) {
  case Outcome::valid: return "VALID";
  case Outcome::unreferenced: return "UNREFERENCED";
  case Outcome::emulated: return "EMULATED";
  case Outcome::invalid: return "INVALID";
  case Outcome::stopped: return "STOPPED";
  }
  return {};
}

int exit_code(Outcome outcome) {
  if (outcome == Outcome::stopped) return static_cast<int>(ExitCode::stopped);
  return static_cast<int>(outcome == Outcome::invalid ? ExitCode::verification_failed : ExitCode::valid);
}

Outcome judge(std::vector<Check> const& checks, bool is_referenced, bool is_emulated) {
  TRAINSTONE_REQUIRE(std::ranges::any_of(checks, &Check::made), "no check was made of {}, which proves nothing",
                     checks.size());
  if (std::ranges::any_of(checks, &Check::failed)) return Outcome::invalid;
  if (is_emulated) return Outcome::emulated;
  return is_referenced ? Outcome::valid : Outcome::unreferenced;
}

std::uint64_t total(NamedAmounts const& amounts) {
  std::uint64_t sum = 0;
  for (auto const& entry : amounts) sum += entry.second;
  return sum;
}

std::uint64_t amount_of(NamedAmounts const& amounts, std::string const& name) {
  auto const found = std::ranges::find(amounts, name, &NamedAmounts::value_type::first);
  return found == amounts.end() ? 0 : found->second;
}

} // namespace trainstone
