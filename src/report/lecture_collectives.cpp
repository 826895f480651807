#include "report/lecture_collectives.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace trainstone {

namespace {

constexpr double micro = 1e-6;

/// Bytes and the like: whole numbers as such.
std::string number(double value) { return fmt::format("{:.0f}", value); }
std::string number(std::optional<double> const& value) { return value ? number(*value) : "-"; }
std::string microseconds(std::optional<double> const& seconds) {
  return seconds ? fmt::format("{:.2f}", *seconds / micro) : "-";
}

std::string folding_note(int ranks) {
  auto const n = static_cast<unsigned>(ranks);
  unsigned const core = std::bit_floor(n);
  if (core == n) return "";
  return fmt::format("  {} is no power of two: P = {} = 2^k, k = {}, e = N - P = {} ranks are folded into the others\n",
                     n, core, std::bit_width(core) - 1, n - core);
}

std::string totals_table(TaughtCollectives const& lecture) {
  std::string text = "1. Bytes sent by all ranks together (M = S)\n";
  text += fmt::format("  {:<17} {:<10} {:>16} {:<14} {:>16} {:>16} {:>8} {:>8}\n", "method", "as taught", "bytes",
                      "exact", "bytes", "counted", "taught/", "balance");
  text += fmt::format("  {:<17} {:<10} {:>16} {:<14} {:>16} {:>16} {:>8} {:>8}\n", "", "", "", "", "", "", "counted",
                      "max/mean");
  for (TotalRow const& row : lecture.totals)
    text += fmt::format("  {:<17} {:<10} {:>16} {:<14} {:>16} {:>16} {:>8.2f} {:>8.2f}\n", row.method,
                        row.taught_formula, number(row.taught), row.exact_formula, row.exact, row.counted,
                        row.taught / static_cast<double>(row.counted), row.balance);
  text += folding_note(lecture.ranks);
  return text +
         "  Note: N steps are counted as taught instead of N-1: at N = 2 that is twice the counter. A server that "
         "is none of\n  the N ranks does receive and send N messages; one that is (main device) has its own "
         "data already. The totals\n  of server, ring and tree are equal, the balance is not: the server's "
         "port carries all of it.\n\n";
}

std::string times_table(TimeTable const& table, char letter) {
  std::string text = fmt::format("2{}. Time of {} bytes, us\n", letter, table.bytes);
  text += fmt::format("  {:<17} {:<13} {:>12} {:>14} {:>14} {:>14} {:>14}\n", "method", "as taught", "us", "alpha = 0",
                      "exact", "simulated", "on machine");
  auto const quickest = [&](double TimeRow::* seconds) { return std::ranges::min(table.rows, {}, seconds).*seconds; };
  double const without = quickest(&TimeRow::without_start);
  double const with = quickest(&TimeRow::priced);
  double const real = quickest(&TimeRow::on_machine);
  // what differs by rounding only shares the first place
  auto const marked = [](double seconds, double least) {
    return (seconds <= least * (1 + 1e-9) ? "*" : "") + microseconds(seconds);
  };
  for (TimeRow const& row : table.rows)
    text += fmt::format("  {:<17} {:<13} {:>12} {:>14} {:>14} {:>14} {:>14}\n", row.method,
                        row.taught_formula.empty() ? "-" : row.taught_formula, microseconds(row.taught),
                        marked(row.without_start, without), microseconds(row.exact), marked(row.priced, with),
                        marked(row.on_machine, real));
  AlphaBetaGamma const& constants = table.constants;
  return text + fmt::format("  alpha = {:.2f} us per message, 1/beta = B = {:.2f} GB/s, 1/gamma = {} GB/s\n",
                            constants.alpha / micro, 1e-9 / constants.beta,
                            constants.gamma > 0 ? fmt::format("{:.2f}", 1e-9 / constants.gamma) : "infinite");
}

std::string times_tables(TaughtCollectives const& lecture) {
  std::string text;
  char letter = 'a';
  for (TimeTable const& table : lecture.times) text += times_table(table, letter++);
  text +=
      "  * = quickest. alpha, beta and gamma are the machine's at the table's size. exact: closed form with these; "
      "simulated:\n  critical path of the schedules; on machine: the machine's own curves. \"Ring has the best "
      "latency\" "
      "is true for alpha = 0,\n  where it is the quickest with Rabenseifner and circulant; with start-up cost the tree "
      "(and the butterfly) win small\n  messages. M N / B of the server counts one direction.\n";
  if (lecture.butterfly_until)
    text += fmt::format("  Butterfly beats Rabenseifner below {:.0f} bytes (N = {}).\n", *lecture.butterfly_until,
                        lecture.ranks);
  return text + "\n";
}

std::string busiest_table(TaughtCollectives const& lecture) {
  std::string text = "3. Ring against Rabenseifner: rounds, and bytes sent by the busiest rank\n";
  text += fmt::format("  {:<17} {:>7} {:>7} {:>7}  {:<16} {:>14} {:<16} {:>14} {:>14}\n", "method", "rounds", "", "",
                      "as taught", "bytes", "exact", "bytes", "counted");
  text += fmt::format("  {:<17} {:>7} {:>7} {:>7}\n", "", "taught", "exact", "counted");
  for (RankRow const& row : lecture.busiest)
    text += fmt::format("  {:<17} {:>7} {:>7} {:>7}  {:<16} {:>14} {:<16} {:>14} {:>14}\n", row.method,
                        row.taught_rounds ? fmt::format("{}", *row.taught_rounds) : "-", row.exact_rounds,
                        row.counted_rounds, row.taught_formula.empty() ? "-" : row.taught_formula,
                        number(row.taught_bytes), row.exact_formula, row.exact_bytes, row.counted_bytes);
  text += folding_note(lecture.ranks);
  return text +
         "  Note: Rabenseifner's traffic as taught holds for N = 2^k; folded it is more. Circulant needs no "
         "folding: the same\n  bytes in 2 ceil(lg N) rounds at any N. The alpha-beta cost of both is in tables 2.\n\n";
}

std::string loads_table(TaughtCollectives const& lecture) {
  std::string text = "4. Bytes through one rank, sent and received\n";
  text += fmt::format("  {:<17} {:>18} {:>16} {:>16} {:>16}\n", "method", "taught per rank", "busiest exact",
                      "busiest counted", "mean counted");
  for (LoadRow const& row : lecture.loads)
    text += fmt::format("  {:<17} {:>18} {:>16} {:>16} {:>16}\n", row.method, number(row.taught), row.exact_busiest,
                        row.counted_busiest, number(row.mean));
  return text + "  Note: 2 S lg N of the tree is its busiest rank's, sent and received together; the mean is "
                "4 S (N-1)/N, the ring's.\n";
}

} // namespace

std::string lecture_collectives_text(TaughtCollectives const& lecture, std::string const& machine) {
  std::string text = fmt::format("All-reduce of S = {} bytes on N = {} ranks of one node: as taught, and exact\n",
                                 lecture.bytes, lecture.ranks);
  text += fmt::format("machine: {}\n\n", machine);
  return text + totals_table(lecture) + times_tables(lecture) + busiest_table(lecture) + loads_table(lecture);
}

} // namespace trainstone
