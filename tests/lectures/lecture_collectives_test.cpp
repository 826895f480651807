#include "lectures/lecture_collectives.hpp"

#include "comm/simulation/chooser.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <string>

using namespace trainstone;
using Catch::Matchers::ContainsSubstring;

namespace {

std::string lecture(int ranks, std::uint64_t bytes) {
  return lecture_collectives_text(compare_taught_collectives(ranks, bytes, default_machine()), "assumed");
}

} // namespace

TEST_CASE("the lecture shows what is taught, exact and counted, with the notes", "[lecture]") {
  std::string const text = lecture(2, 1000);
  CHECK_THAT(text, ContainsSubstring("All-reduce of S = 1000 bytes on N = 2 ranks"));
  CHECK_THAT(text, ContainsSubstring("machine: assumed\n"));
  CHECK_THAT(text, ContainsSubstring("  ring              2 N M                  4000 2 (N-1) S                  2000"
                                     "             2000     2.00     1.00\n"));
  CHECK_THAT(text, ContainsSubstring("at N = 2 that is twice the counter"));
  CHECK_THAT(text, ContainsSubstring("2a. Time of 1000 bytes"));
  CHECK_THAT(text, ContainsSubstring("2b. Time of 8 bytes"));
  CHECK_THAT(text, ContainsSubstring("true for alpha = 0"));
  CHECK_THAT(text, ContainsSubstring("alpha = 1.00 us per message, 1/beta = B = 10.00 GB/s, 1/gamma = 8.00 GB/s"));
  CHECK_THAT(text, ContainsSubstring("Butterfly beats Rabenseifner below"));
  CHECK_THAT(text, ContainsSubstring("4. Bytes through one rank"));
  CHECK_THAT(text, !ContainsSubstring("folded into the others"));
}

TEST_CASE("folding is told where there is some", "[lecture]") {
  std::string const text = lecture(6, 480);
  CHECK_THAT(text, ContainsSubstring("6 is no power of two: P = 4 = 2^k, k = 2, e = N - P = 2 ranks"));
  CHECK_THAT(text, ContainsSubstring("P k S + 2 e S"));
  CHECK_THAT(text, ContainsSubstring("2 S (P-1)/P + S"));
  CHECK_THAT(text, !ContainsSubstring("Butterfly beats"));
}

TEST_CASE("no line of the lecture is wider than a terminal of 132 columns", "[lecture]") {
  for (int const ranks : {2, 31, 256}) {
    std::uint64_t const step = taught_size_step(ranks);
    std::string const text = lecture(ranks, (std::uint64_t{1} << 24) / step * step);
    std::size_t begin = 0;
    for (std::size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n', begin)) {
      INFO(text.substr(begin, end - begin));
      CHECK(end - begin <= 132);
      begin = end + 1;
    }
  }
}
