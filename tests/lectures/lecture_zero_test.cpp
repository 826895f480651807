#include "lectures/lecture_zero.hpp"

#include "comm/simulation/chooser.hpp"
#include "support/lines.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

using namespace trainstone;
using Catch::Matchers::ContainsSubstring;

namespace {

std::string lecture(std::int64_t ranks) {
  return lecture_zero_text(compare_taught_zero(ranks, default_machine()), "assumed");
}

} // namespace

TEST_CASE("the lecture on ZeRO shows published and exact figures, with the notes", "[lecture]") {
  std::string const text = lecture(64);
  CHECK_THAT(text,
             ContainsSubstring("taught        120      52.5      35.6      31.4      30.4      30.1     4 Psi\n"));
  CHECK_THAT(text, ContainsSubstring("4 + 12/N           exact     120.000    52.500    35.625    31.406"));
  CHECK_THAT(text,
             ContainsSubstring("exact     120.000    30.000     7.500     1.875     0.469     0.117     0.000\n"));
  CHECK_THAT(text, ContainsSubstring("that is stage 2's formula"));
  CHECK_THAT(text, ContainsSubstring("mixed20          4        8        N       4.706"));
  CHECK_THAT(text,
             ContainsSubstring("3           > 1000         > 1000      128.00    2048.00     128.00     2048.0\n"));
  CHECK_THAT(text, ContainsSubstring("the paper measured what is taught"));
  CHECK_THAT(text, ContainsSubstring("stage 1, all-reduce             - 3 Psi (N-1)/N "));
}

TEST_CASE("broadcasts of stage 3 are compared where every message can be simulated", "[lecture]") {
  CHECK_THAT(lecture(64), ContainsSubstring("  machine: assumed\n"));
  CHECK_THAT(lecture(65), ContainsSubstring("Tables 5, stage 3 by broadcast or by all-gather, and 6"));
  CHECK_THAT(lecture(65), !ContainsSubstring("\n5. "));
}

TEST_CASE("units of several blocks are set beside each other: fewer gathers, more memory", "[lecture]") {
  std::string const text = lecture(8);
  CHECK_THAT(text, ContainsSubstring("6. Stage 3 with units of several blocks (parallel.unit): gpt3-6.7b, 32 blocks"));
  CHECK_THAT(text, ContainsSubstring("  1               66        66        462 "));
  CHECK_THAT(text, ContainsSubstring("  4               18        18        126 "));
  CHECK_THAT(text, ContainsSubstring("  32               4         4         28 "));
}

TEST_CASE("no line of the lecture on ZeRO is wider than 132 columns", "[lecture]") {
  for (std::int64_t const ranks : {2, 64, 1000, 65536}) CHECK(test::longest_line(lecture(ranks)) <= 132);
}
