#include "lectures/lecture_activations.hpp"

#include "support/lines.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

using namespace trainstone;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("the lecture on activations shows taught figures beside those of the activation plan", "[lecture]") {
  std::string const text = lecture_activations_text(compare_taught_activations());
  std::string const words = test::without_widths(text);
  CHECK_THAT(words, ContainsSubstring("\nquery, key, value 6 sbh 150.99 150.99 qkv\n"));
  CHECK_THAT(words, ContainsSubstring("\nresult of its dropout 2 abss 805.31 0.00 -\n"));
  CHECK_THAT(words, ContainsSubstring("\nin total, \"5bss + 8sbh\" 8 sbh + 5 abss 2214.59 1409.29\n"));
  CHECK_THAT(words, ContainsSubstring("\nall, masks stored 34 sbh + 5 abss 4.483 430.3 275.4 34 sbh + 3 abss 3.224 "
                                      "309.5 198.1\n"));
  CHECK_THAT(words, ContainsSubstring("\nall, masks recomputed - - - - 32 sbh + 2 abss 2.517 241.6 154.6\n"));
  CHECK_THAT(words, ContainsSubstring("\nselective recomputation 34 sbh 1.337 128.3 82.14 32 sbh 1.258 120.8 77.31\n"));
  CHECK_THAT(words, ContainsSubstring("\nfull recomputation 2 sbh 0.07864 7.55 4.832 2 sbh 0.07864 7.55 4.832\n"));
  CHECK_THAT(words, ContainsSubstring("\ngpt3-175b 30%~40% 33.33 22.22 22.37 22.30 2-5 % 0.23 0.23\n"));
  CHECK_THAT(words, ContainsSubstring("of the other texts of a block of the\n"));
  CHECK_THAT(words, ContainsSubstring("\n8 tensor ranks, each * (10 + 24/t) sbh + 5 abss/t "));
  CHECK_THAT(words, ContainsSubstring("\nsame, sequence parallel * 34 sbh/t + 5 abss/t "));
  CHECK_THAT(words, ContainsSubstring("nobody\nreads the last product's result again"));
  CHECK(test::longest_line(text) <= 132);
}
