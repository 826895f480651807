#include "lectures/lecture_pipeline.hpp"

#include "support/lines.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

using namespace trainstone;
using Catch::Matchers::ContainsSubstring;

namespace {

std::string lecture(Index stages, std::optional<Index> micro_batches) {
  return lecture_pipeline_text(compare_taught_pipeline(stages, micro_batches));
}

} // namespace

TEST_CASE("the lecture on pipelines draws the grids of the slides and counts their waits", "[lecture]") {
  std::string const text = lecture(3, {});
  CHECK_THAT(text, ContainsSubstring("  2 micro-batches   forward               backward\n"
                                     "    stage 0         F0   F1   wait wait   wait wait B0   B1\n"
                                     "    stage 1         wait F0   F1   wait   wait B0   B1   wait\n"
                                     "    stage 2         wait wait F0   F1     B0   B1   wait wait\n"));
  std::string const words = test::without_widths(text);
  CHECK_THAT(words, ContainsSubstring("\n1 micro-batch 6 of 9 6 of 9 6 of 9 6 of 9 66.7 %\n"));
  CHECK_THAT(words, ContainsSubstring("\n2 micro-batches 6 of 12 6 of 12 6 of 12 6 of 12 50.0 %\n"));
  CHECK_THAT(words, ContainsSubstring("\n3 micro-batches 6 of 15 6 of 15 6 of 15 6 of 15 40.0 %\n"));
  CHECK_THAT(words, ContainsSubstring("\nnaive 3 1 (p-1)/p 66.7 % 66.7 % p-1 2.0000 2.0000\n"));
  CHECK_THAT(words, ContainsSubstring("\ngpipe 3 1 (p-1)/(m+p-1) 40.0 % 40.0 % (p-1)/m 0.6667 0.6667\n"));
  CHECK_THAT(words, ContainsSubstring("\n1f1b 3 1 3 2 1 3 2 1 12 12 6 6\n"));
  CHECK_THAT(words, ContainsSubstring("\ninterleaved 3 2 6 6 4 6 6 4 30 30 10 10\n"));
  std::string const waiting = text.substr(text.find("\n2. "), text.find("\n3. ") - text.find("\n2. "));
  CHECK_THAT(waiting, ContainsSubstring("formulas of papers, not taught"));
  CHECK_THAT(waiting, !ContainsSubstring("as taught"));
  for (char const* note : {"Only 1 GPU works each moment", "+Data Parallel", "leaves out its middle",
                           "leave out this memory and the messages"})
    CHECK_THAT(text, ContainsSubstring(note));
}

TEST_CASE("other shapes have no taught cells, and large grids are not drawn", "[lecture]") {
  CHECK_THAT(test::without_widths(lecture(4, 8)),
             ContainsSubstring("\n8 micro-batches - 12 of 44 12 of 44 12 of 44 27.3 %\n"));
  std::string const text = lecture(64, 64);
  CHECK_THAT(text, ContainsSubstring("64 micro-batches: 127 cells each; `trainstone explain pipeline"));
  CHECK_THAT(test::without_widths(text), ContainsSubstring("\n1f1b 64 1 64 63 62 ... 1 64 63 62 ... 1 "));
}

TEST_CASE("no line of the lecture on pipelines is wider than 132 columns", "[lecture]") {
  CHECK(test::longest_line(lecture(3, {})) <= 132);
  CHECK(test::longest_line(lecture(2, 10)) <= 132);
  CHECK(test::longest_line(lecture(64, {})) <= 132);
  CHECK(test::longest_line(lecture(12, 1024)) <= 132);
}
