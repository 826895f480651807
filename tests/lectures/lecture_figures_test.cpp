// Every figure that the lectures teach, as the program prints it, against the figures of the slides. They are written
// down here once more, as literals: nothing is taken from the program. What is exact has tests of its own
// (tests/lectures/taught_*_test.cpp).

#include "comm/simulation/chooser.hpp"
#include "lectures/lecture_capability.hpp"
#include "lectures/lecture_collectives.hpp"
#include "lectures/lecture_models.hpp"
#include "lectures/lecture_zero.hpp"
#include "support/lines.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <string>
#include <string_view>
#include <vector>

using namespace trainstone;
using Catch::Matchers::ContainsSubstring;

namespace {

/// Every one of `lines` is the beginning of a line of the text.
void require_lines(std::string const& text, std::vector<std::string_view> const& lines) {
  std::string const words = test::without_widths(text);
  for (std::string_view const line : lines) CHECK_THAT(words, ContainsSubstring("\n" + std::string(line)));
}

/// Notes may be broken into lines anywhere.
void require_notes(std::string const& text, std::vector<std::string_view> const& notes) {
  std::string words = test::without_widths(text);
  for (char& character : words)
    if (character == '\n') character = ' ';
  for (std::string_view const note : notes) CHECK_THAT(words, ContainsSubstring(std::string(note)));
}

std::string collectives_text(int ranks = 8, std::uint64_t bytes = 1 << 20) {
  MachineModel const machine = uniform_machine({1e-6, 1e-10, 1.25e-10}); // 1 us, 10 GB/s, 8 GB/s
  return lecture_collectives_text(compare_taught_collectives(ranks, bytes, machine), "1 us and 10 GB/s");
}

std::string zero_text(std::int64_t ranks = 64) {
  return lecture_zero_text(compare_taught_zero(ranks, default_machine()), "assumed");
}
std::string models_text() { return lecture_models_text(compare_taught_models()); }
std::string capability_text() { return lecture_capability_text(compare_taught_capability()); }

} // namespace

TEST_CASE("the capability table has seven rows with all four taught columns", "[figures]") {
  require_lines(capability_text(), {
                                       "DP 1.2 > 1000 Very Good Great ",
                                       "MP 20 16 Good Needs Model Rewrite ",
                                       "MP + DP 20 > 1000 Good Needs Model Rewrite ",
                                       "PP 100 128 Very Good Needs Model Rewrite ",
                                       "PP + DP 100 > 1000 Very Good Needs Model Rewrite ",
                                       "MP + PP + DP > 1000 > 1000 Very Good Needs Significant Model Rewrite ",
                                       "ZeRO > 1000 > 1000 Very Good Great ",
                                   });
  require_notes(capability_text(), {"Mixed precision Adam on Cluster of DGX-2 with NVIDIA 32 GB V100 GPUs"});
}

TEST_CASE("exact limits are given of ways that the program has", "[figures]") {
  std::string const words = test::without_widths(capability_text());
  // 32 GB / 16 bytes; 3.2 M tokens / 2048 = 1562.5 samples; 2 B x 1562
  require_lines(words, {"DP 1.2 > 1000 Very Good Great 2.0 1562 ", "ZeRO > 1000 > 1000 Very Good Great 3124.0 1562 "});
  // h is as large as the largest rank of 2 B allows. MP: 12 h^2 + 3157 h, as of 96 heads each rank has one, h = 12779;
  // PP: a block alone, 12 h^2 + 13 h, h = 12909; both: 12 h^2 / 96 + 6 h, h = 126466. Models of 96 blocks of
  // 12 h^2 + 13 h and 52307 h of tables; x 1562 data ranks
  require_lines(words, {"MP 20 16 Good Needs Model Rewrite 188.8 96 t divides the heads\n",
                        "MP + DP 20 > 1000 Good Needs Model Rewrite 188.8 149952 ",
                        "PP 100 128 Very Good Needs Model Rewrite 192.7 98 p <= L + 2\n",
                        "PP + DP 100 > 1000 Very Good Needs Model Rewrite 192.7 153076 ",
                        "MP + PP + DP > 1000 > 1000 Very Good Needs Significant Model Rewrite 18431.5 14695296 "});
}

TEST_CASE("memory under ZeRO is the published one, with the limits of many devices", "[figures]") {
  require_lines(zero_text(),
                {"0 taught 120 120 120 120 120 120", "1 taught 120 52.5 35.6 31.4 30.4 30.1 4 Psi",
                 "2 taught 120 41.3 21.6 16.6 15.4 15.1 2 Psi", "3 taught 120 30 7.5 1.88 0.469 0.117 0\n"});
  require_notes(zero_text(), {"2 Psi + 14 Psi/N"});
}

TEST_CASE("4, 8 and N times less memory are taught with 16 and with 20 bytes per parameter", "[figures]") {
  // 16/(4 + 12/64), 16/(2 + 14/64); 20/(4 + 16/64), 20/(2 + 18/64)
  require_lines(zero_text(), {"mixed16 4 8 N 3.821 7.211 64.000", "mixed20 4 8 N 4.706 8.767 64.000"});
  CHECK_THAT(test::without_widths(zero_text()), !ContainsSubstring("mixed20 5 10 N"));
  require_notes(zero_text(), {"20 bytes per parameter", "5, 10 and N"});
}

TEST_CASE("the largest models under ZeRO are the measured ones", "[figures]") {
  require_lines(zero_text(), {"0 1.2 20 ", "1 6 100 ", "2 13 200 ", "3 > 1000 > 1000 "});
}

TEST_CASE("the volume of stage 1 by all-reduce is not taught", "[figures]") {
  require_lines(zero_text(), {"data parallel, all-reduce 1 2 Psi (N-1)/N ", "stage 1 1 2 Psi (N-1)/N ",
                              "stage 1, all-reduce - 3 Psi (N-1)/N ", "stage 2 1 2 Psi (N-1)/N ",
                              "stage 2, all-reduce - 3 Psi (N-1)/N ", "stage 3 1.5 3 Psi (N-1)/N "});
}

TEST_CASE("stage 3 by broadcast is set against all-gather", "[figures]") {
  // GPT-2 on 4 ranks: the owner of the token table owns 39.4 of 124.4 M parameters; the mean is 31.1 M
  std::string const words = test::without_widths(zero_text(4));
  require_lines(words, {"all-gather, ring 186.7 1.00 ", "broadcast, binomial 214.4 "});
  require_notes(words, {"39.4", "31.1"});
}

TEST_CASE("totals of all-reduces are the taught ones", "[figures]") {
  require_lines(collectives_text(),
                {"main device 2 N M 16777216 2 (N-1) S 14680064 14680064 ",
                 "dedicated server 2 N M 16777216 2 N S 16777216 16777216 ",
                 "naive N^2 M 67108864 N (N-1) S 58720256 58720256 ",
                 "ring 2 N M 16777216 2 (N-1) S 14680064 14680064 ", "tree 2 N M 16777216 2 (N-1) S 14680064 14680064 ",
                 "butterfly N M lg N 25165824 N S lg N 25165824 25165824 "});
}

TEST_CASE("latencies of all-reduces are the taught ones", "[figures]") {
  // 1 MiB / 10 GB/s = 104.8576 us; the server's 2 N transfers take 1677.72 us even without start-up cost
  require_lines(collectives_text(), {"main device M N / B 838.86 ", "dedicated server M N / B 838.86 1677.72 ",
                                     "ring 2 M / B 209.72 ", "tree 2 M lg N / B 629.15 "});
}

TEST_CASE("alpha-beta costs of ring and Rabenseifner are the taught ones, without gamma", "[figures]") {
  // at 1 MiB and at 32 bytes: 14 (1 us + S/(8 B)); 6 us + 14 S/(8 B)
  require_lines(collectives_text(), {"ring 2 (N-1) (alpha + beta S/(N B)) 197.50 312.19 14.01 ",
                                     "rabenseifner 2 ceil(lg N) alpha + 2 (N-1) beta S/(N B) 189.50 304.19 6.01 "});
  require_notes(collectives_text(), {"at every size", "large data to the ring"});
}

TEST_CASE("rounds and bytes per rank are the taught ones", "[figures]") {
  require_lines(collectives_text(),
                {"ring 14 14 14 2 S (N-1)/N 1835008 2 S (N-1)/N 1835008 1835008",
                 "ring, 2 M each - 14 14 2 M 2097152 2 S (N-1)/N 1835008 1835008",
                 "ring of whole data 7 7 7 (N-1) S 7340032 (N-1) S 7340032 7340032",
                 "tree 6 6 6 - - lg N S 3145728 3145728", "butterfly 3 3 3 S lg N 3145728 S lg N 3145728 3145728",
                 "rabenseifner 6 6 6 2 S (N-1)/N 1835008 2 S (N-1)/N 1835008 1835008"});
}

TEST_CASE("the tree's load is taught without overlap, and the pipelined tree is beside it", "[figures]") {
  require_lines(collectives_text(), {"tree 6291456 6291456 6291456 ", "pipelined tree - - "});
  require_notes(collectives_text(), {"without overlapping"});
}

TEST_CASE("Rabenseifner's traffic is told round by round", "[figures]") {
  require_lines(collectives_text(), {"1 S/2 524288 524288", "2 S/4 262144 262144", "3 S/8 131072 131072",
                                     "4 S/8 131072 131072", "5 S/4 262144 262144", "6 S/2 524288 524288"});
}

TEST_CASE("sizes, computation and memory of named models are printed as on the slide", "[figures]") {
  require_lines(models_text(),
                {"bert-large 24 1024 0.32 334090240 -4.2 % 1x ", "gpt2-xl 48 1600 1.5 1557611200 -3.7 % 4.7x ",
                 "turing-nlg 78 4256 17.2 17176845728 +0.1 % 54x ",
                 "gpt3-175b 96 12288 175 174604259328 +0.2 % 547x "});
  require_lines(models_text(), {"bert-large 5.12GB 16 32 40 80 ", "gpt2-xl 24GB 32 40 80 ", "turing-nlg 275GB none ",
                                "gpt3-175b 2800GB none "});
  require_notes(models_text(), {"V100 of 16 and 32 GB", "A100 of 40 and 80 GB", "20 GB on every GPU"});
}

TEST_CASE("the state of GPT-3 is the taught one, with activations beside it", "[figures]") {
  require_lines(models_text(), {"master copy, fp32 4 700 ", "first moment, fp32 4 700 ", "second moment, fp32 4 700 ",
                                "parameters, 16 bits 2 350 ", "gradients, 16 bits 2 350 ", "sum 16 2800 "});
  // b s = 3.2 M tokens, s = 2048, h = 12288, a = 96, 96 layers; GB of one sample, TB of all
  require_lines(models_text(), {"34 sbh + 5 abss, as taught 275.4 430.3", "34 sbh, selective recomputation 82.14 128.3",
                                "2 sbh, full recomputation 4.832 7.55"});
  require_notes(models_text(), {"depending on batch size", "Buffer and Fragmentation"});
}

TEST_CASE("what is taught of powers of two is not said of others", "[figures]") {
  // 6 ranks, 3 steps of 16 bytes each: 2 S lg 6 = 4962.8 is not what the busiest rank has, 2 S x 3 is
  std::string const of_six = collectives_text(6, 960);
  require_lines(of_six, {"tree 4963 5760 5760 3200\n"});
  require_notes(of_six, {"busiest rank's for N = 2^k", "2 S ceil(lg N)"});
  require_notes(of_six, {"Table 5, Rabenseifner round by round, is left out", "6 is no power of two"});
  CHECK_THAT(of_six, !ContainsSubstring("\n5. "));
  CHECK_THAT(collectives_text(), ContainsSubstring("\n5. "));
}

TEST_CASE("small times have digits, and only the quickest ones are marked", "[figures]") {
  std::string const text = test::without_widths(collectives_text(6, 960));
  // 24 bytes at 10 GB/s are 2.4 ns; a ring's ten messages of 4 bytes take 4 ns, a butterfly's four of 24 take 9.6
  require_lines(text, {"ring 2 M / B 0.0048 *0.004 ", "butterfly - - 0.0096 "});
}

TEST_CASE("exact totals differ between a dedicated server and others", "[figures]") {
  require_notes(collectives_text(),
                {"As taught server, ring and tree have the same total", "a dedicated server has 2 S more"});
}

TEST_CASE("slips of the lectures are named beside the tables that they belong to", "[figures]") {
  require_notes(collectives_text(), {"N (N-1) M", "SIGNAL+WAIL", "beta is a factor", "exact for N = 2^k",
                                     "Intra nodes: low bandwidth; Inter node: high bandwidth", "the same name",
                                     "Ring: any N", "Rabenseifner: fewest start-ups"});
  require_notes(models_text(), {"5bss + 8sbh", "Turning NLR 17.2B", "16 and 20 bytes"});
  require_notes(zero_text(),
                {"send the optimizer states", "Two decks draw stage 1 with an AllReduce", "reduce-scatter (1)",
                 "\"AllReduce\" where stage 2 has a reduce-scatter",
                 "some slides call stage 3's exchange broadcast, one deck first broadcast and then all-gather",
                 "\"zero\""});
  require_notes(capability_text(), {"+Data Parallel", "p = 128"});
}
