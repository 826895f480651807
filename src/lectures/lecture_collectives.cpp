#include "lectures/lecture_collectives.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace trainstone {

namespace {

constexpr double micro = 1e-6;

/// Bytes and the like: whole numbers as such.
std::string number(double value) { return fmt::format("{:.0f}", value); }
std::string number(std::optional<double> const& value) { return value ? number(*value) : "-"; }
/// Below a microsecond by significant digits, so that small times differ.
std::string microseconds(std::optional<double> const& seconds) {
  if (!seconds) return "-";
  return *seconds < micro ? fmt::format("{:.3g}", *seconds / micro) : fmt::format("{:.2f}", *seconds / micro);
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
         "data already. As taught\n  server, ring and tree have the same total. Exact, main device, ring and tree have "
         "it, and a dedicated server has 2 S more.\n  The balance is not the same: the server's port carries all of "
         "it. One deck has N (N-1) M and N^2 M for the naive way; the\n  first is exact.\n\n";
}

std::string times_table(TimeTable const& table, char letter) {
  std::string text = fmt::format("2{}. Time of {} bytes, us\n", letter, table.bytes);
  text += fmt::format("  {:<17} {:<13} {:>12} {:>14} {:>14} {:>14} {:>14}\n", "method", "as taught", "us",
                      "alpha=gamma=0", "exact", "simulated", "on machine");
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

/// The cost that is taught, at both sizes.
std::string costs_table(std::vector<TimeTable> const& times) {
  constexpr auto line = "  {:<17} {:<42} {:>12} {:>12} {:>12} {:>12}\n";
  std::string text = "2c. Cost with start-up as taught (gamma = 0) and exact, us\n";
  std::string const large = fmt::format("{} B", times[0].bytes), small = fmt::format("{} B", times[1].bytes);
  text += fmt::format(line, "", "", large, "", small, "");
  text += fmt::format(line, "method", "as taught", "as taught", "exact", "as taught", "exact");
  for (std::size_t i = 0; i < times[0].rows.size(); ++i) {
    TimeRow const &first = times[0].rows[i], &second = times[1].rows[i];
    if (first.taught_cost)
      text += fmt::format(line, first.method, first.taught_cost_formula, microseconds(first.taught_cost),
                          microseconds(first.exact), microseconds(second.taught_cost), microseconds(second.exact));
  }
  return text;
}

std::string times_tables(TaughtCollectives const& lecture) {
  std::string text;
  char letter = 'a';
  for (TimeTable const& table : lecture.times) text += times_table(table, letter++);
  text +=
      "  * = quickest. alpha, beta and gamma are the machine's at the table's size. exact: closed form with these; "
      "simulated:\n  critical path of the schedules; on machine: the machine's own curves, with copies inside a rank, "
      "which are free in "
      "the\n  other columns: circulant packs blocks that it sends together. \"Ring has the best latency\" is "
      "true for alpha = 0,\n  where it is the quickest with Rabenseifner and circulant; with start-up cost the tree "
      "(and the butterfly) win small\n  messages. M N / B of the server counts one direction. One deck says \"Intra "
      "nodes: low bandwidth; Inter node: high bandwidth\";\n  it is the other way round.\n";
  if (lecture.butterfly_until)
    text += fmt::format("  Butterfly beats Rabenseifner below {:.0f} bytes (N = {}).\n", *lecture.butterfly_until,
                        lecture.ranks);
  return text + costs_table(lecture.times) +
         "  Note: in these two formulas beta is a factor beside B (here 1), elsewhere seconds per byte; neither counts "
         "additions.\n  As taught Rabenseifner's algorithm costs less than the ring at every size if N is 4 or more, "
         "as 2 "
         "ceil(lg N) < 2 (N-1);\n  yet the lecture's pros and cons give large data to the ring. On one port with one "
         "beta the ring never wins for N = 2^k. It\n  does where links between neighbours are faster, because it "
         "crosses "
         "each node border once, or where N is no power of two\n  and Rabenseifner folds. Ring: any N, one neighbour "
         "each way, most start-ups. Rabenseifner: fewest start-ups, peers far apart.\n\n";
}

std::string busiest_table(TaughtCollectives const& lecture) {
  std::string text = "3. Rounds, and bytes sent by the busiest rank\n";
  text += fmt::format("  {:<18} {:>7} {:>7} {:>7}  {:<12} {:>14} {:<16} {:>14} {:>14}\n", "method", "rounds", "", "",
                      "as taught", "bytes", "exact", "bytes", "counted");
  text += fmt::format("  {:<18} {:>7} {:>7} {:>7}\n", "", "taught", "exact", "counted");
  for (RankRow const& row : lecture.busiest)
    text += fmt::format("  {:<18} {:>7} {:>7} {:>7}  {:<12} {:>14} {:<16} {:>14} {:>14}\n", row.method,
                        row.taught_rounds ? fmt::format("{}", *row.taught_rounds) : "-", row.exact_rounds,
                        row.counted_rounds, row.taught_formula.empty() ? "-" : row.taught_formula,
                        number(row.taught_bytes), row.exact_formula, row.exact_bytes, row.counted_bytes);
  text += folding_note(lecture.ranks);
  return text +
         "  Note: Rabenseifner's traffic as taught holds for N = 2^k; folded it is more. Circulant needs no "
         "folding: the same\n  bytes in 2 ceil(lg N) rounds at any N. Decks give two algorithms the same name, Ring "
         "AllReduce: one passes whole data on\n  N-1 times, the other slices, which are N/2 times fewer bytes. \"2 M "
         "each\" of a\n  worker is the slices' sum, rounded up.\n\n";
}

std::string loads_table(TaughtCollectives const& lecture) {
  std::string text = "4. Bytes through one rank, sent and received\n";
  text += fmt::format("  {:<17} {:>18} {:>16} {:>16} {:>16}\n", "method", "taught per rank", "busiest exact",
                      "busiest counted", "mean counted");
  for (LoadRow const& row : lecture.loads)
    text += fmt::format("  {:<17} {:>18} {:>16} {:>16} {:>16}\n", row.method, number(row.taught),
                        row.exact_busiest ? fmt::format("{}", *row.exact_busiest) : "-", row.counted_busiest,
                        number(row.mean));
  return text +
         "  Note: 2 S lg N of the tree is its busiest rank's for N = 2^k, sent and received together, \"without "
         "overlapping\"; for other\n  N that rank has 2 S ceil(lg N). The mean is 4 S (N-1)/N, the ring's. The "
         "pipelined tree overlaps: inner ranks receive,\n  add and send segments at a time (times in table 2).\n\n";
}

std::string exchanges_table(TaughtCollectives const& lecture) {
  if (lecture.exchanges.empty())
    return fmt::format(
        "Table 5, Rabenseifner round by round, is left out: it is taught for N = 2^k, and {} is no power "
        "of two.\n",
        lecture.ranks);
  std::string text = "5. Rabenseifner round by round: bytes that a rank sends\n";
  text += fmt::format("  {:>7} {:>10} {:>14} {:>14}\n", "round", "as taught", "bytes", "counted");
  for (ExchangeRow const& row : lecture.exchanges)
    text += fmt::format("  {:>7} {:>10} {:>14} {:>14}\n", row.round, row.taught_formula, number(row.taught_bytes),
                        row.counted);
  return text +
         "  Note: the sum 2 S (N-1)/N, taught with an almost-equal sign, is exact for N = 2^k. Among the operations "
         "of libraries one\n  slide lists SIGNAL+WAIL: signal and wait.\n";
}

} // namespace

std::string lecture_collectives_text(TaughtCollectives const& lecture, std::string const& machine) {
  std::string text = fmt::format("All-reduce of S = {} bytes on N = {} ranks of one node: as taught, and exact\n",
                                 lecture.bytes, lecture.ranks);
  text += fmt::format("machine: {}\n\n", machine);
  return text + totals_table(lecture) + times_tables(lecture) + busiest_table(lecture) + loads_table(lecture) +
         exchanges_table(lecture);
}

} // namespace trainstone
