#include "report/lecture_models.hpp"

#include "support/lines.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

using namespace trainstone;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("the lecture on models shows nominal and computed counts, memory and verdicts", "[lecture]") {
  std::string const text = lecture_models_text(compare_taught_models());
  CHECK_THAT(text, ContainsSubstring("gpt3-175b             175     174604259328   +0.2 %           547"));
  CHECK_THAT(text, ContainsSubstring("gpt2-medium         0.355        354823168   +0.0 %             -"));
  // 1.5576 B: 24.92 GB at 16 bytes, 31.15 GB at 20
  CHECK_THAT(text,
             ContainsSubstring("gpt2-xl          24.00   32 40 80        24.92      23.21   32 40 80        31.15      "
                               "29.01   32 40 80\n"));
  CHECK_THAT(text, ContainsSubstring("turing-nlg      275.20   none "));
  CHECK_THAT(text, ContainsSubstring("master copy, fp32             4            700       698.42       650.45\n"));
  CHECK_THAT(text, ContainsSubstring("sum                          16           2800      2793.67      2601.81\n"));
  CHECK(test::longest_line(text) <= 132);
}

TEST_CASE("cards are named by size", "[lecture]") {
  CHECK(cards_text(1, gigabyte) == "16 32 40 80");
  CHECK(cards_text(80.5e9, gigabyte) == "none");
  CHECK(cards_text(80.5e9, gibibyte) == "80");
}
