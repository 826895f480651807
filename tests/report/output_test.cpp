#include "report/output.hpp"

#include "core/error.hpp"
#include "train/plan/config.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <algorithm>
#include <cmath>
#include <regex>
#include <sstream>

using namespace trainstone;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::EndsWith;
using Catch::Matchers::Matches;

namespace {

constexpr std::uint64_t tenth = 104858; // of a MiB, rounded up

RunHeader header() {
  RunHeader run;
  run.version = "0.1.0";
  run.git = "1a2b3c4d";
  run.kokkos = "4.5.1 Serial";
  run.mpi = "MPICH 5.0.2";
  run.ranks = 2;
  run.deck = "quickstart.toml#9f3e +1 override";
  return run;
}

StepReport step(std::int64_t number, std::int64_t steps) {
  StepReport report;
  report.step = number;
  report.steps = steps;
  report.loss = 2.81469;
  report.norm = 0.909;
  report.learning_rate = 3e-4;
  report.seconds = 0.4123;
  report.tokens = 4096;
  report.phase_seconds[Phase::gemm] = 0.71 * report.seconds;
  report.phase_seconds[Phase::attention] = 0.12 * report.seconds;
  report.phase_seconds[Phase::optimizer] = 0.04 * report.seconds;
  report.phase_seconds[Phase::communication] = 0.18 * report.seconds;
  report.exposed_communication_seconds = 0.04 * report.seconds;
  return report;
}

std::vector<Check> checks(bool all_pass) {
  return {{"loss-curve", all_pass, 0.002, 0.001, "first 10 steps"},
          {"comm-volume", true, 0, 0, "bytes"},
          {"finite", true, 0, 0, "losses"}};
}

/// Everything that a run prints at its end.
std::string ending(std::vector<Check> const& found, bool golden, bool emulated = false) {
  Outcome const outcome = judge(found, golden, emulated);
  return verification_lines(found) + rate_lines(outcome, {9931.312, 9911, 9958}, 2) +
         result_line(outcome, "custom", false, "out/result.json") + "\n";
}

std::ptrdiff_t lines(std::string const& text) { return std::count(text.begin(), text.end(), '\n'); }

} // namespace

TEST_CASE("an amount is found by its name, and is 0 where there is none", "[output]") {
  CHECK(amount_of({{"parameters", 1}, {"data", 2}}, "data") == 2);
  CHECK(amount_of({}, "data") == 0);
}

TEST_CASE("a stopped run has an exit code of its own and no rate", "[output]") {
  CHECK(rate_lines(Outcome::stopped, {9931.312, 9911, 9958}, 2).empty());
  CHECK(result_line(Outcome::stopped, "custom", true, "out/result.json") ==
        "RESULT: STOPPED class=custom exit=75 json=out/result.json");
}

TEST_CASE("a run that is VALID by a golden file of the user's own says so", "[output]") {
  CHECK(result_line(Outcome::valid, "tiny", true, "a.json") ==
        "RESULT: VALID class=tiny golden=local exit=0 json=a.json");
  CHECK(result_line(Outcome::valid, "tiny", false, "a.json") == "RESULT: VALID class=tiny exit=0 json=a.json");
  CHECK(result_line(Outcome::invalid, "tiny", true, "a.json") == "RESULT: INVALID class=tiny exit=65 json=a.json");
}

TEST_CASE("a million ranks and 10^13 tokens per step have a rate that is neither negative nor cut off", "[output]") {
  constexpr std::int64_t ranks = 1000000, samples = 10000, sequence = 1000;
  BatchConfig const batch = resolve_batch({.micro = samples, .accumulation = 1}, ranks);
  StepReport report = step(1, 1000);
  report.tokens = batch.global * sequence;
  CHECK(report.tokens == 10000000000000);
  report.seconds = 0.5;
  CHECK_THAT(step_line(report, -1), ContainsSubstring("| 2.00e+13 tok/s |"));
  std::vector<double> const seconds(1000, 0.5);
  Rate const all = rate(1000 * static_cast<double>(report.tokens), seconds);
  CHECK(rate_lines(Outcome::valid, all, ranks) == "FOM: 2.000000e+13 tokens/s  ci95 2.00e+13 2.00e+13\n"
                                                  "FOM_PER_RANK: 2.000000e+07 tokens/s\n");
}

TEST_CASE("the header names version, libraries, ranks and deck", "[output]") {
  CHECK(header_line(header()) ==
        "trainstone 0.1.0 git 1a2b3c4d clean | Kokkos 4.5.1 Serial | MPICH 5.0.2 | buffers host "
        "| 2 ranks on 1 node | deck quickstart.toml#9f3e +1 override");
  RunHeader other = header();
  other.dirty = true;
  other.ranks = 1;
  other.nodes = 3;
  CHECK_THAT(header_line(other), ContainsSubstring("git 1a2b3c4d dirty |") && ContainsSubstring("1 rank on 3 nodes"));
  other.git.clear();
  CHECK_THAT(header_line(other), ContainsSubstring(" git unknown |"));
}

TEST_CASE("the header says what is emulated, and a note what messages take", "[output]") {
  RunHeader run = header();
  run.nodes = 2;
  run.emulated_nodes = run.emulated_network = true;
  CHECK_THAT(header_line(run), ContainsSubstring("| 2 ranks on 2 emulated nodes | emulated network | deck "));
  CommConfig comm;
  comm.emulated_latency = 50e-6;
  std::string const words =
      "note: the network is emulated: a rank sends and receives one message after the other, messages take ";
  CHECK(network_line(comm) == words + "50 us");
  comm.emulated_bandwidth = 1e9;
  CHECK(network_line(comm) == words + "50 us and their bytes at 1 GB/s");
  comm.emulated_inside_latency = 1e-6;
  CHECK(network_line(comm) == words + "50 us and their bytes at 1 GB/s, inside a node 1 us");
  comm.emulated_node_port = true;
  CHECK(network_line(comm) == words +
                                  "50 us and their bytes at 1 GB/s, inside a node 1 us, and the ranks of a node share "
                                  "one connection to other nodes");
  comm = {};
  comm.emulated_bandwidth = 1e9;
  CHECK(network_line(comm) == words + "their bytes at 1 GB/s");
}

TEST_CASE("the memory line has the total and every category", "[output]") {
  NamedAmounts const memory{{"parameters", 121 * tenth},  {"gradients", 121 * tenth}, {"optimizer", 242 * tenth},
                            {"activations", 212 * tenth}, {"buffers", 30 * tenth},    {"data", 20 * tenth}};
  CHECK(memory_line(memory) == "memory per rank   predicted 74.6 MiB (parameters 12.1, gradients 12.1, optimizer 24.2, "
                               "activations 21.2, buffers 3.0, data 2.0)");
}

TEST_CASE("the work line has bytes, messages and operations", "[output]") {
  CHECK(work_line(121 * tenth, 46, 40000000000) ==
        "per step and rank predicted 12.1 MiB sent in 46 messages, 4.0e+10 FLOP");
  CHECK(work_line(0, 0, 0) == "per step and rank predicted 0.0 MiB sent in 0 messages, 0.0e+00 FLOP");
}

TEST_CASE("the table of kernels has launches, time, share and rates of each, and how near to its bound it is",
          "[output]") {
  std::vector<KernelRow> const kernels{{"trainstone::gemm[oneDNN]", 49, 0.03, 3e9, 6e6},
                                       {"trainstone::residual::forward", 12.5, 0.01, 1e5, 2e7}};
  std::string const head =
      "kernels of a step, each timed on its own      launches         ms      %      GB/s   GFLOP/s  of bound\n";
  std::string const product =
      "trainstone::gemm[oneDNN]                          49.0     30.000   75.0       0.2     100.0  ";
  std::string const residual =
      "trainstone::residual::forward                     12.5     10.000   25.0       2.0       0.0  ";
  CHECK(kernel_lines(kernels, 125e9, 8e9) == head + product + "80 % gemm\n" + residual + "25 % bandwidth\n");
  CHECK(kernel_lines(kernels, NAN, NAN) == head + product + "-\n" + residual + "-\n");
}

TEST_CASE("a step line is the documented one", "[output]") {
  CHECK(step_line(step(20, 100), 33.2) ==
        "step    20/100 | loss 2.8147 | norm 0.91 | lr 3.0e-04 | 412.3 ms | 9.93e+03 tok/s | gemm 71 % attention 12 % "
        "adam 4 % comm 18 % (exposed 4 %) | ETA 33 s");
}

TEST_CASE("a step line has no parts where kernels are not timed", "[output]") {
  StepReport report = step(20, 100);
  report.phases_are_timed = false;
  CHECK_THAT(step_line(report, 33.2), EndsWith("| 9.93e+03 tok/s | comm exposed 4 % | ETA 33 s"));
}

TEST_CASE("a step line shows the held-out loss where one was measured", "[output]") {
  StepReport report = step(20, 100);
  report.validation_loss = 3.25;
  CHECK_THAT(step_line(report, -1), ContainsSubstring("| loss 2.8147 | held-out 3.2500 | norm 0.91 |"));
  CHECK_THAT(step_line(report, -1), !ContainsSubstring("ETA"));
}

TEST_CASE("a step line shows the loss scale, and that its step was skipped", "[output]") {
  StepReport report = step(20, 100);
  report.loss_scale = 32768;
  CHECK_THAT(step_line(report, -1), EndsWith("(exposed 4 %) | scale 32768"));
  report.skipped = true;
  CHECK_THAT(step_line(report, -1), EndsWith("| scale 32768 | SKIPPED: gradients overflow, the scale halves"));
}

TEST_CASE("a step without time prints no infinities", "[output]") {
  StepReport report = step(1, 1);
  report.seconds = 0;
  CHECK_THAT(step_line(report, 0), !ContainsSubstring("inf") && !ContainsSubstring("nan"));
}

TEST_CASE("the time that is left has a fitting unit", "[output]") {
  CHECK_THAT(step_line(step(1, 2), 119), ContainsSubstring("ETA 119 s"));
  CHECK_THAT(step_line(step(1, 2), 600), ContainsSubstring("ETA 10 min"));
  CHECK_THAT(step_line(step(1, 2), 9000), ContainsSubstring("ETA 2.5 h"));
}

TEST_CASE("a verified run ends in FOM and RESULT lines", "[output]") {
  CHECK(ending(checks(true), true) == "VERIFICATION PASSED (3/3): loss-curve comm-volume finite\n"
                                      "FOM: 9.931312e+03 tokens/s  ci95 9.91e+03 9.96e+03\n"
                                      "FOM_PER_RANK: 4.965656e+03 tokens/s\n"
                                      "RESULT: VALID class=custom exit=0 json=out/result.json\n");
}

TEST_CASE("the FOM line is what harnesses search for", "[output]") {
  std::string const text = ending(checks(true), true);
  CHECK(std::regex_search(text, std::regex(R"((^|\n)FOM: [0-9]\.[0-9]{6}e[+-][0-9]{2} tokens/s  ci95 \S+ \S+\n)")));
}

TEST_CASE("a run without golden curve is unreferenced", "[output]") {
  std::string const text = ending(checks(true), false);
  CHECK_THAT(text, ContainsSubstring("\nFOM_UNREFERENCED: 9.931312e+03 tokens/s") &&
                       ContainsSubstring("\nRESULT: UNREFERENCED class=custom exit=0 "));
  CHECK_THAT(text, !ContainsSubstring("FOM:") && !ContainsSubstring("FOM_PER_RANK"));
}

TEST_CASE("a failed verification prints no figure of merit", "[output]") {
  for (bool const golden : {false, true}) {
    std::string const text = ending(checks(false), golden);
    CHECK_THAT(text, !ContainsSubstring("FOM"));
    CHECK_THAT(text, ContainsSubstring("VERIFICATION FAILED (2/3): loss-curve\n"
                                       "  loss-curve: first 10 steps (value 2.000000e-03, limit 1.000000e-03)\n"
                                       "UNVERIFIED_RATE: 9.931312e+03 tokens/s") &&
                         ContainsSubstring("RESULT: INVALID class=custom exit=65 json=out/result.json\n"));
  }
}

TEST_CASE("a rate on an emulated network or with a delay is no figure of merit, golden curve or not", "[output]") {
  for (bool const golden : {false, true}) {
    std::string const text = ending(checks(true), golden, true);
    CHECK_THAT(text, ContainsSubstring("VERIFICATION PASSED (3/3)") &&
                         ContainsSubstring("\nFOM_EMULATED: 9.931312e+03 tokens/s") &&
                         ContainsSubstring("\nRESULT: EMULATED class=custom exit=0 "));
    CHECK_THAT(text, !ContainsSubstring("FOM:") && !ContainsSubstring("FOM_PER_RANK") && !ContainsSubstring("VALID"));
    std::string const failed = ending(checks(false), golden, true);
    CHECK_THAT(failed, ContainsSubstring("\nUNVERIFIED_RATE: ") &&
                           ContainsSubstring("\nRESULT: INVALID class=custom exit=65 "));
    CHECK_THAT(failed, !ContainsSubstring("FOM"));
  }
}

TEST_CASE("a check that could not be made is neither passed nor failed", "[output]") {
  Check const launch{.name = "launch", .value = 2, .detail = "no launcher told", .made = false};
  auto with_launch = [&launch](bool all_pass) {
    std::vector<Check> all = checks(all_pass);
    all.push_back(launch);
    return all;
  };
  CHECK(ending(with_launch(true), true) == "VERIFICATION PASSED (3/3): loss-curve comm-volume finite\n"
                                           "  launch: unknown: no launcher told (value 2)\n"
                                           "FOM: 9.931312e+03 tokens/s  ci95 9.91e+03 9.96e+03\n"
                                           "FOM_PER_RANK: 4.965656e+03 tokens/s\n"
                                           "RESULT: VALID class=custom exit=0 json=out/result.json\n");
  CHECK_THAT(ending(with_launch(false), true),
             ContainsSubstring("VERIFICATION FAILED (2/3): loss-curve\n") && ContainsSubstring("  launch: unknown: "));
  CHECK_THROWS_AS(judge({launch}, true, false), Error);
}

TEST_CASE("a run without checks is not judged", "[output]") { CHECK_THROWS_AS(judge({}, true, false), Error); }

TEST_CASE("a pipe gets about twenty plain lines", "[output]") {
  for (std::int64_t const steps : {1, 7, 20, 21, 100, 997}) {
    std::ostringstream out;
    ProgressPrinter printer(out, false);
    for (std::int64_t i = 1; i <= steps; ++i) printer(step(i, steps));
    CHECK(lines(out.str()) >= std::min<std::int64_t>(steps, 11));
    CHECK(lines(out.str()) <= 22);
    CHECK(out.str().find('\r') == std::string::npos);
    CHECK_THAT(out.str(), ContainsSubstring(std::to_string(steps) + "/" + std::to_string(steps) + " |"));
  }
}

TEST_CASE("steps with a held-out loss always get a line", "[output]") {
  std::ostringstream out;
  ProgressPrinter printer(out, false);
  for (std::int64_t i = 1; i <= 1000; ++i) {
    StepReport report = step(i, 1000);
    if (i == 777) report.validation_loss = 1.5;
    printer(report);
  }
  CHECK_THAT(out.str(), ContainsSubstring("step   777/1000 | loss 2.8147 | held-out 1.5000"));
}

TEST_CASE("a terminal sees every step on a line that is redrawn", "[output]") {
  std::ostringstream out;
  ProgressPrinter printer(out, true);
  for (std::int64_t i = 1; i <= 100; ++i) printer(step(i, 100));
  std::string const text = out.str();
  CHECK(std::count(text.begin(), text.end(), '\r') == 100);
  CHECK(lines(text) == 21); // 1, 5, 10, ... 100
  CHECK(text.back() == '\n');
}

TEST_CASE("the time left does not count the slow first step", "[output]") {
  std::ostringstream out;
  ProgressPrinter printer(out, false);
  StepReport first = step(1, 3);
  first.seconds = 1000;
  printer(first);
  printer(step(2, 3));
  CHECK_THAT(out.str(), ContainsSubstring("ETA 33 min") && ContainsSubstring("ETA 0 s"));
}

TEST_CASE("after a restart the time left is that of the steps that were run", "[output]") {
  std::ostringstream out;
  ProgressPrinter printer(out, false);
  for (std::int64_t i = 501; i <= 511; ++i) printer(step(i, 1000));
  CHECK_THAT(out.str(), ContainsSubstring("step   501/1000 |"));
  out.str("");
  StepReport last = step(512, 1000);
  last.requests.stop = true;
  printer(last);
  CHECK_THAT(out.str(), ContainsSubstring("step   512/1000 |") && ContainsSubstring("ETA 3 min")); // 488 x 0.4123 s
}
