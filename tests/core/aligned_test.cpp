#include "core/aligned.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace trainstone;

TEST_CASE("tables are folded between columns, and every piece begins with the first column", "[aligned]") {
  std::vector<std::vector<std::string>> const rows{{"", "one", "two", "three", "four"}, {"ab", "1", "22", "", "4"}};
  std::string const whole = "      one  two  three  four\n  ab  1    22          4\n";
  CHECK(aligned(rows) == whole);
  CHECK(folded(rows, 27) == whole);
  CHECK(folded(rows, 26) == "      one  two  three\n  ab  1    22\n      four\n  ab  4\n");
  CHECK(folded(rows, 14) == "      one  two\n  ab  1    22\n      three\n  ab\n      four\n  ab  4\n");
  // a column that is wider than a line has one of its own
  CHECK(folded(rows, 1) == "      one\n  ab  1\n      two\n  ab  22\n      three\n  ab\n      four\n  ab  4\n");
  CHECK(folded({{"a"}, {"bc"}}, 80) == "  a\n  bc\n");
}
