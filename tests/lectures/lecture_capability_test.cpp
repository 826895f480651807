#include "lectures/lecture_capability.hpp"

#include "support/lines.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

using namespace trainstone;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("the lecture on capability shows taught and exact figures with their limits", "[lecture]") {
  std::string const text = lecture_capability_text(compare_taught_capability());
  CHECK_THAT(text, ContainsSubstring("As taught: \"Mixed precision Adam on Cluster of DGX-2"));
  CHECK_THAT(text, ContainsSubstring("gpt3-175b       96     96      16        96        98"));
  CHECK(test::longest_line(text) <= 132);
}
