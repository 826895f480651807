#include "report/commbench_table.hpp"

#include "core/error.hpp"
#include "report/calibration_table.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <nlohmann/json.hpp>

#include <cmath>

using namespace trainstone;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinRel;

namespace {

CommbenchRow row(std::string algorithm, std::uint64_t bytes, std::vector<double> seconds) {
  CommbenchRow row;
  row.collective = "all_reduce";
  row.type = "float32";
  row.operation = "sum";
  row.algorithm = std::move(algorithm);
  row.bytes = bytes;
  row.count = static_cast<std::int64_t>(bytes / 4);
  row.seconds = std::move(seconds);
  row.calls = 20;
  row.wrong = 0;
  return row;
}

CommbenchRow predicted(CommbenchRow row, double seconds) {
  row.predicted_seconds = seconds;
  return row;
}

CommbenchRow spoiled(CommbenchRow row, std::int64_t wrong) {
  row.wrong = wrong;
  return row;
}

} // namespace

TEST_CASE("rates are size by median time, the bus rate by its factor", "[commbench]") {
  CommbenchRow ring = predicted(row("ring", 4'000'000, {1e-3, 3e-3, 2e-3}), 2.5e-3);
  ring.bus_factor = 1.5;
  CHECK(algorithm_bandwidth(ring) == 2.0);
  CHECK_THAT(*residual(ring), WithinRel(0.25));
  std::string const line = commbench_row_line(ring);
  for (char const* text : {" 4000000 ", " 1000000 ", " float32 ", " sum ", " ring ", " 2000.00 ", " 1100.00 ",
                           " 2900.00 ", " 2.00 ", " 3.00 ", " 2500.00 ", " 25.0"})
    CHECK_THAT(line, ContainsSubstring(text));
}

TEST_CASE("a wrong result has no time, no rate, no ratio and no say in choices", "[commbench]") {
  CommbenchRow const bad = spoiled(predicted(row("ring", 4096, {1e-6, 1e-6}), 1e-6), 17);
  std::string const line = commbench_row_line(bad);
  CHECK_THAT(line, ContainsSubstring("WRONG") && ContainsSubstring(" 17 ") && !ContainsSubstring("1.00"));
  CHECK_FALSE(algorithm_bandwidth(bad));
  CHECK_FALSE(residual(bad));
  std::vector const rows{bad, row("mpi", 4096, {2e-6, 2e-6})};
  CHECK(ratios_to_mpi(rows).empty());
  CHECK(comparisons(rows).empty());
  auto const json = nlohmann::json::parse(commbench_json({}, {}, {}, rows));
  CHECK(json["status"] == "WRONG");
  CHECK(json["rows"][0]["seconds"].is_null());
  CHECK(json["rows"][0]["algorithm_bytes_per_second"].is_null());
  CHECK(json["rows"][0]["wrong"] == 17);
}

TEST_CASE("of MPI's forms the one with the least median is kept, in whatever order they were timed", "[commbench]") {
  CommbenchRow fast = row("mpi", 8, {2e-6, 2e-6, 9e-6}), slow = row("mpi", 8, {1e-6, 3e-6, 3e-6});
  fast.picked = "two buffers";
  slow.picked = "in place";
  std::vector const ours{row("ring", 8, {5e-6}), row("auto", 8, {4e-6})};
  auto const kept_of = [&](std::vector<CommbenchRow> const& forms) {
    std::vector<CommbenchRow> rows = ours;
    rows.insert(rows.end(), forms.begin(), forms.end());
    std::vector<std::string> names;
    for (CommbenchRow const& one : with_fastest_form(rows)) names.push_back(one.algorithm + " " + one.picked);
    return names;
  };
  std::vector<std::string> const expected{"ring ", "auto ", "mpi two buffers"}, alone{"ring ", "auto ", "mpi in place"};
  CHECK(kept_of({slow, fast}) == expected);
  CHECK(kept_of({fast, slow}) == expected);
  CHECK(kept_of({slow}) == alone);
  CHECK(kept_of({slow, slow}) == alone);
  CHECK(kept_of({}) == std::vector<std::string>{"ring ", "auto "});
}

TEST_CASE("what was not checked says so, and a barrier has no rate", "[commbench]") {
  CommbenchRow barrier = row("dissemination", 0, {1e-6});
  barrier.wrong.reset();
  CHECK_FALSE(algorithm_bandwidth(barrier));
  CHECK_THAT(commbench_row_line(barrier), ContainsSubstring("1.00") && !ContainsSubstring("nan"));
  auto const json = nlohmann::json::parse(commbench_json({}, {}, {}, std::vector{barrier}));
  CHECK(json["rows"][0]["wrong"].is_null());
}

TEST_CASE("ratios pair the samples of a pass, then take the geometric mean over sizes", "[commbench]") {
  // a machine that is ten times slower in the second pass
  std::vector const rows{
      row("ring", 8, {1e-6, 10e-6, 1e-6}),
      row("tree", 8, {2e-6, 20e-6, 2e-6}),
      row("mpi", 8, {4e-6, 40e-6, 4e-6}),
      row("ring", 16, {1e-6, 1e-6, 1e-6}),
      spoiled(row("tree", 16, {1e-6, 1e-6, 1e-6}), 1),
      row("mpi", 16, {1e-6, 1e-6, 1e-6}),
      row("ring", 32, {1e-6, 1e-6, 1e-6}), // no mpi of this size
      row("nccl", 8, {1e-6, 1e-6, 1e-6}),  // not one of ours
  };
  auto const ratios = ratios_to_mpi(rows);
  REQUIRE(ratios.size() == 2);
  CHECK(ratios[0].algorithm == "ring");
  CHECK_THAT(ratios[0].geometric_mean, WithinRel(2.0)); // of 4 and 1
  CHECK_THAT(ratios[0].minimum, WithinRel(1.0));
  CHECK(ratios[0].minimum_bytes == 16);
  CHECK(ratios[0].sizes == 2);
  CHECK(ratios[1].algorithm == "tree");
  CHECK_THAT(ratios[1].geometric_mean, WithinRel(2.0));
  CHECK(ratios[1].sizes == 1);
}

TEST_CASE("predictions are counted per algorithm, by the median, up to a quarter of it", "[commbench]") {
  std::vector const rows{
      predicted(row("ring", 8, {1, 4, 9}), 5),    predicted(row("tree", 8, {4, 4, 4}), 5.1),
      predicted(row("auto", 8, {4, 4, 4}), 4),    row("mpi", 8, {4, 4, 4}),
      predicted(row("ring", 16, {4, 4, 4}), 2.9), spoiled(predicted(row("ring", 32, {4, 4, 4}), 4), 1),
      predicted(row("tree", 16, {4, 4, 4}), 3)};
  auto const scores = prediction_scores(rows);
  REQUIRE(scores.size() == 2);
  CHECK((scores[0].algorithm == "ring" && scores[0].within == 1 && scores[0].sizes == 2));
  CHECK((scores[1].algorithm == "tree" && scores[1].within == 1 && scores[1].sizes == 2));
  CHECK_THAT(commbench_summary_lines(rows), ContainsSubstring("# predictions within 25 % of the median\n#   ring"));
}

TEST_CASE("choices are compared among our algorithms, without auto and mpi", "[commbench]") {
  CommbenchRow automatic = predicted(row("auto", 8, {1e-6}), 1e-6);
  automatic.picked = "ring";
  std::vector const rows{predicted(row("ring", 8, {3e-6}), 1e-6), predicted(row("tree", 8, {2e-6}), 4e-6), automatic,
                         row("mpi", 8, {1e-7})};
  CHECK(automatic.name() == "auto (ring)");
  auto const sizes = comparisons(rows);
  REQUIRE(sizes.size() == 1);
  REQUIRE(sizes[0].competitors.size() == 2);
  std::string const text = commbench_summary_lines(rows);
  CHECK_THAT(text, ContainsSubstring("ring") && ContainsSubstring("50.0")); // ring picked, 3 us against 2 us
  auto const json = nlohmann::json::parse(commbench_json({}, {}, {}, rows));
  CHECK(json["summaries"][0]["crossovers"][0]["picked"] == "ring");
  CHECK(json["summaries"][0]["crossovers"][0]["fastest"] == "tree");
  CHECK_THAT(json["summaries"][0]["crossovers"][0]["loss"].get<double>(), WithinRel(0.5));
}

TEST_CASE("a file of a measurement that goes on says so", "[commbench]") {
  std::vector const rows{row("ring", 8, {1e-6})};
  auto const begun = nlohmann::json::parse(commbench_json({}, Drift{{"combine", 1}}, {}, rows));
  CHECK(begun["finished"] == false);
  CHECK(begun["drift"]["before"]["combine"] == 1.0);
  CHECK(begun["drift"]["after"].is_null());
  CHECK(begun["rows"].size() == 1);
  auto const ended = nlohmann::json::parse(commbench_json({}, {}, Drift{}, rows));
  CHECK(ended["finished"] == true);
  CHECK(ended["drift"]["after"].empty());
}

TEST_CASE("collectives and types have summaries of their own", "[commbench]") {
  CommbenchRow other = row("ring", 8, {1e-6});
  other.type = "float64";
  CommbenchRow gather = row("ring", 8, {1e-6});
  gather.collective = "all_gather";
  auto const json =
      nlohmann::json::parse(commbench_json({}, {}, {}, std::vector{row("ring", 8, {1e-6}), other, gather}));
  CHECK(json["summaries"].size() == 3);
  CHECK(json["rows"].size() == 3);
  CHECK(json["status"] == "RIGHT");
  CHECK(commbench_summary_lines({}).empty());
}

TEST_CASE("the header says what was measured with what", "[commbench]") {
  CommbenchHeader header;
  header.mpi = "MPICH 5.0.2";
  header.mpi_settings = {{"MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM", "ring"}};
  header.transports = {"libuct_cma", "libxpmem"};
  header.choice = "auto: the fastest";
  header.ranks = 2;
  header.nodes = 2;
  header.emulated_nodes = true;
  header.buffers = "private";
  std::string const text = commbench_header_lines(header);
  for (char const* part :
       {"MPICH 5.0.2", "MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM=ring", "2 ranks on 2 emulated nodes", "buffers private",
        "transports loaded: libuct_cma libxpmem\n", "# choices: auto: the fastest\n"})
    CHECK_THAT(text, ContainsSubstring(part));
}

TEST_CASE("a machine that has left the state it was calibrated in is noted", "[commbench]") {
  Drift const same{{"message_intra", 1.4}, {"node_barrier", 0.7}};
  CHECK(drift_lines("before", same) ==
        "# before the measurements, measured / predicted: message_intra 1.40 node_barrier 0.70\n");
  CHECK_THAT(drift_lines("after", {{"node_barrier", 3.1}}), ContainsSubstring("3.10\n# note: the machine is not in"));
  CHECK_THAT(drift_lines("after", {{"node_barrier", 0.3}}), ContainsSubstring("# note"));
  CHECK(drift_lines("before", {}).empty()); // one rank
  auto const json = nlohmann::json::parse(commbench_json({}, same, Drift{}, {}));
  CHECK(json["drift"]["before"]["node_barrier"] == 0.7);
  CHECK(json["drift"]["after"].empty());
}

TEST_CASE("a fitted curve is printed with its pieces and its errors on fitted and held-out sizes", "[calibration]") {
  FittedCurveText const curve{.name = "message_intra",
                              .pieces = {{0, 1e-6, 1e-10}, {65536, 5e-6, 0}},
                              .errors = {{8, 1e-6, 0.1, false}, {12, 1e-6, -0.3, true}, {16, 1e-6, 0.2, true}}};
  std::string const text = curve_lines(curve);
  for (char const* part : {"message_intra", "1.000 us + 10.00 GB/s", "5.000 us + no slope", "median 10.0 %",
                           "median 25.0 %, largest 30.0 %, 2 sizes"})
    CHECK_THAT(text, ContainsSubstring(part));
  CHECK_THAT(curve_error_lines(curve), ContainsSubstring("-30.0 %  held out"));
  CHECK(share_within(curve, 0, 0.25) == 0.5);
  CHECK(share_within(curve, 16, 0.25) == 1);
  CHECK_THROWS_AS(share_within(curve, 17, 0.25), Error);
}
