#include "report/simulate_table.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <string>
#include <vector>

using namespace trainstone;
using Catch::Matchers::ContainsSubstring;

namespace {

std::string table(std::vector<SimulatedRow> const& rows) {
  return simulate_table({.ranks = 48, .nodes = 1, .type = "float32", .machine = "assumed"}, rows);
}

} // namespace

TEST_CASE("a simulated table has rates, marks and the ranges of auto", "[simulate-table]") {
  std::string const text = table({{"all_reduce", 8, "ring", 20e-6, 1.5, false},
                                  {"all_reduce", 8, "tree", 10e-6, 1.5, false},
                                  {"all_reduce", 4096, "ring", 20.48e-6, 1.5, true},
                                  {"all_reduce", 4096, "tree", 20.48e-6, 1.5, true},
                                  {"barrier", 0, "dissemination", 5e-6, 1, false}});
  CHECK_THAT(text, ContainsSubstring("# predicted, not measured: 48 ranks on 1 node in block order, float32\n"));
  CHECK_THAT(text, ContainsSubstring("# machine: assumed\n"));
  std::string const all = "all_reduce     ";
  CHECK_THAT(text,
             ContainsSubstring(all + "              8  ring                                20.00        0.000        "
                                     "0.001\n"));
  CHECK_THAT(text,
             ContainsSubstring(all + "              8  tree                                10.00        0.001        "
                                     "0.001  *\n"));
  // of equals the first is the quickest, and what the machine was not measured for is told
  CHECK_THAT(text,
             ContainsSubstring(all + "           4096  ring                                20.48        0.200        "
                                     "0.300  * ~\n"));
  CHECK_THAT(text,
             ContainsSubstring(all + "           4096  tree                                20.48        0.200        "
                                     "0.300    ~\n"));
  CHECK_THAT(text,
             ContainsSubstring("barrier                      0  dissemination                        5.00            -"
                               "            -\n")); // the only one is not the quickest of some
  CHECK_THAT(text,
             ContainsSubstring("\nall_reduce\n"
                               "      from B         to B  auto picks               predicted us        to us\n"
                               "           8            8  tree                            10.00        10.00\n"
                               "        4096         4096  ring                            20.48        20.48\n"));
}

TEST_CASE("one algorithm alone is no choice", "[simulate-table]") {
  std::string const text = table({{"all_reduce", 8, "ring", 20e-6, 1.5, false}});
  CHECK_THAT(text, !ContainsSubstring("auto picks") && !ContainsSubstring("  *\n"));
}

TEST_CASE("no rows are a header", "[simulate-table]") { CHECK_THAT(table({}), ContainsSubstring("algbw GB/s")); }
