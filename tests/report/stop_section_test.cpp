// What a report says of the time, the samples and the work until a held-out loss.

#include "report/stop_section.hpp"

#include "support/result_fixture.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

using namespace trainstone;
using namespace trainstone::test;
using Catch::Matchers::ContainsSubstring;

namespace {

NamedResult reaching(std::string const& name, double seconds, double tokens, std::string const& loss = "4.0") {
  NamedResult named = test::named(name, run_of(Outcome::valid, 4, 100));
  named.file.result.metrics["seconds_to_stop_loss"] = seconds;
  named.file.result.metrics["tokens_to_stop_loss"] = tokens;
  named.file.result.metrics["steps_to_stop_loss"] = tokens / 100;
  named.file.result.metrics["flops_to_stop_loss"] = 1e6 * tokens;
  named.file.deck_values["data.stop_loss"] = loss;
  return named;
}

} // namespace

TEST_CASE("runs stand beside the fastest one of the same held-out loss", "[report]") {
  NamedResult const never = test::named("never", run_of(Outcome::valid, 4, 100));
  CHECK(stop_section({never}).empty());
  CHECK_FALSE(cost_text(never.file.result));
  CHECK(cost_text(reaching("a", 2, 800).file.result) == "2 s, 8 steps, 800 tokens, 8e+08 FLOP");
  std::string const page = page_markdown(
      stop_section({reaching("sync", 6, 800), never, reaching("async", 2, 1200), reaching("other", 9, 100, "5.0")}));
  CHECK_THAT(page, ContainsSubstring("| async | 4.0 | 2 s | 1.00 x | 12 | 1200 | 1.00 x | 1.2e+09 |\n"
                                     "| sync | 4.0 | 6 s | 3.00 x | 8 | 800 | 0.67 x | 8e+08 |\n"
                                     "| other | 5.0 | 9 s | 1.00 x | 1 | 100 | 1.00 x | 1e+08 |\n"));
  CHECK_THAT(page, !ContainsSubstring("never |"));
}
