#include "support/numerics.hpp"

#include <nlohmann/json.hpp>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>

namespace trainstone::test {

namespace {

struct Errors {
  double largest = 0, of_bound = 0;
};

/// By test case; those without comparisons stay out.
std::map<std::string, Errors>& all_errors() {
  static std::map<std::string, Errors> errors;
  return errors;
}

std::string& running() {
  static std::string test_case;
  return test_case;
}

} // namespace

void note_error(double error, double bound) {
  if (!std::isfinite(error)) return; // fails by itself
  Errors& errors = all_errors()[running()];
  errors.largest = std::fmax(errors.largest, error);
  if (bound > 0) errors.of_bound = std::fmax(errors.of_bound, error / bound);
}

void begin_numerics(std::string const& test_case) { running() = test_case; }

void write_numerics() {
  char const* const path = std::getenv("TRAINSTONE_NUMERICS");
  if (!path) return;
  auto rows = nlohmann::ordered_json::array();
  for (auto const& [test_case, errors] : all_errors())
    rows.push_back({{"test", test_case}, {"largest error", errors.largest}, {"of its bound", errors.of_bound}});
  std::ofstream(path) << rows.dump(1) << '\n';
}

} // namespace trainstone::test
