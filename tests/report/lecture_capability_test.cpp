#include "report/lecture_capability.hpp"

#include "support/lines.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

using namespace trainstone;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("the lecture on capability shows taught and exact figures with their limits", "[lecture]") {
  std::string const text = lecture_capability_text(compare_taught_capability());
  CHECK_THAT(text, ContainsSubstring("tensor parallelism             20       16        32.0       16  t divides a\n"));
  CHECK_THAT(text, ContainsSubstring("pipeline parallelism          100      128       192.0       96  p <= L\n"));
  CHECK_THAT(text, ContainsSubstring("ZeRO stage 3               > 1000   > 1000      2048.0     1024  N <= batch\n"));
  CHECK_THAT(text, ContainsSubstring("p = 128 is not possible"));
  CHECK_THAT(text, ContainsSubstring("gpt3-175b      96   96       16        96         -"));
  CHECK(test::longest_line(text) <= 132);
}
