#include "lectures/lecture_models.hpp"

#include "support/lines.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

using namespace trainstone;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("the lecture on models shows nominal and computed counts, memory and verdicts", "[lecture]") {
  std::string const text = lecture_models_text(compare_taught_models());
  std::string const words = test::without_widths(text);
  // FLOP per token as in tests/lectures/taught_models_test.cpp
  CHECK_THAT(words, ContainsSubstring("\ngpt3-175b 96 12288 175 174604259328 +0.2 % 547x 500.5\n"));
  CHECK_THAT(words, ContainsSubstring("\ngpt2-medium 24 1024 0.355 354823168 0.0 % - 1.127\n"));
  // 1.5576 B: 24.92 GB at 16 bytes, 31.15 GB at 20
  CHECK_THAT(words, ContainsSubstring("\ngpt2-xl 24GB 32 40 80 24.92 23.21 32 40 80 31.15 29.01 32 40 80\n"));
  CHECK_THAT(words, ContainsSubstring("\ngpt3-6.7b - - 106.53 "));
  CHECK_THAT(text, ContainsSubstring("master copy, fp32             4            700       698.42       650.45\n"));
  CHECK_THAT(text, ContainsSubstring("sum                          16           2800      2793.67      2601.81\n"));
  CHECK(test::longest_line(text) <= 132);
}

TEST_CASE("cards are named by size", "[lecture]") {
  CHECK(cards_text(1, gigabyte) == "16 32 40 80");
  CHECK(cards_text(80.5e9, gigabyte) == "none");
  CHECK(cards_text(80.5e9, gibibyte) == "80");
}
