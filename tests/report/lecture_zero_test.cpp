#include "report/lecture_zero.hpp"

#include "support/lines.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

using namespace trainstone;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("the lecture on ZeRO shows published and exact figures, with the notes", "[lecture]") {
  std::string const text = lecture_zero_text(compare_taught_zero(64));
  CHECK_THAT(text, ContainsSubstring("taught        120      52.5      35.6      31.4      30.4      30.1\n"));
  CHECK_THAT(text, ContainsSubstring("4 + 12/N           exact     120.000    52.500    35.625    31.406"));
  CHECK_THAT(text, ContainsSubstring("exact     120.000    30.000     7.500     1.875     0.469     0.117\n"));
  CHECK_THAT(text, ContainsSubstring("that is stage 2's formula"));
  CHECK_THAT(text, ContainsSubstring("mixed20          5       10        N       4.706"));
  CHECK_THAT(text,
             ContainsSubstring("3           > 1000         > 1000      128.00    2048.00     128.00     2048.0\n"));
  CHECK_THAT(text, ContainsSubstring("the paper measured what is taught"));
  CHECK_THAT(text, ContainsSubstring("stage 1, all-reduce           1.5 3 Psi (N-1)/N "));
}

TEST_CASE("no line of the lecture on ZeRO is wider than 132 columns", "[lecture]") {
  for (std::int64_t const ranks : {2, 1000, 65536})
    CHECK(test::longest_line(lecture_zero_text(compare_taught_zero(ranks))) <= 132);
}
