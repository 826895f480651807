#include "lectures/lecture_zero.hpp"

#include <fmt/format.h>

namespace trainstone {

namespace {

constexpr double giga = 1e9;

std::string or_dash(std::string const& text) { return text.empty() ? "-" : text; }

std::string memory_table(TaughtZero const& lecture) {
  std::string text = "1. Model state per device, GB (10^9 bytes): 7.5 B parameters, recipe mixed16, no padding\n";
  text += fmt::format("  {:<7} {:<18} {:<7}", "stage", "bytes x parameters", "N =");
  for (std::int64_t const ranks : taught_zero_ranks) text += fmt::format(" {:>9}", ranks);
  text += fmt::format(" {:>9}\n", "many");
  for (ZeroMemoryRow const& row : lecture.memory) {
    text += fmt::format("  {:<7} {:<18} {:<7}", row.stage, "", "taught");
    for (double const gigabytes : row.taught_gigabytes) text += fmt::format(" {:>9}", gigabytes);
    text += fmt::format(" {:>9}\n", or_dash(row.taught_limit));
    text += fmt::format("  {:<7} {:<18} {:<7}", "", row.formula, "exact");
    for (double const bytes : row.bytes) text += fmt::format(" {:>9.3f}", bytes / giga);
    text += fmt::format(" {:>9.3f}\n", row.limit / giga);
  }
  return text +
         "  Stage 0 is plain data parallelism; 1 shards the optimizer's state (12 bytes per parameter: master copy "
         "and two\n  moments), 2 the gradients too (2), 3 the parameters too (2).\n"
         "  Note: one slide gives stage 1 as 2 Psi + 14 Psi/N; that is stage 2's formula. One deck writes the key "
         "\"zero\" "
         "in a configuration;\n  DeepSpeed's is zero_optimization.\n\n";
}

std::string ratio_table(TaughtZero const& lecture) {
  std::string text = "2. Times less memory than plain data parallelism\n";
  text += fmt::format("  {:<9} {:>8} {:>8} {:>8}  {:>10} {:>10} {:>10}\n", "recipe", "stage 1", "stage 2", "stage 3",
                      "stage 1", "stage 2", "stage 3");
  text += fmt::format("  {:<9} {:>26}  {:>32}\n", "", "as taught", fmt::format("exact, N = {}", lecture.ranks));
  for (ZeroRatioRow const& row : lecture.ratios)
    text += fmt::format("  {:<9} {:>8} {:>8} {:>8}  {:>10.3f} {:>10.3f} {:>10.3f}\n", to_string(row.recipe),
                        or_dash(row.taught[0]), or_dash(row.taught[1]), or_dash(row.taught[2]), row.exact[0],
                        row.exact[1], row.exact[2]);
  return text +
         "  Note: what is taught is the limit of many devices. One deck teaches 4, 8 and N beside 20 bytes per "
         "parameter; they hold\n  for 16, and for 20 the limits are 5, 10 and N. mixed18 keeps fp32 gradients (2 + 4 "
         "+ 12 bytes), mixed20 an fp32 copy of\n  them in the optimizer (2 + 2 + 16), fp32 is 4 + 4 + 8.\n\n";
}

std::string largest_table(TaughtZero const& lecture) {
  std::string text = "3. Largest model in 32 GB, 10^9 parameters, recipe mixed16\n";
  text += fmt::format("  {:<7} {:>10} {:>14}  {:>10} {:>10} {:>10} {:>10}\n", "stage", "as taught", "with model",
                      "exact", "exact", "exact", fmt::format("exact x {}", taught_tensor_ranks));
  text += fmt::format("  {:<7} {:>10} {:>14}  {:>10} {:>10} {:>10} {:>10}\n", "", "(measured)", "parallelism", "N = 64",
                      "N = 1024", fmt::format("N = {}", lecture.ranks), "N = 64");
  for (ZeroLargestRow const& row : lecture.largest)
    text += fmt::format("  {:<7} {:>10} {:>14}  {:>10.2f} {:>10.2f} {:>10.2f} {:>10.1f}\n", row.stage,
                        row.taught_measured, row.taught_with_tensor_ranks, row.exact[0] / giga, row.exact[1] / giga,
                        row.exact[2] / giga, row.with_tensor_ranks / giga);
  return text +
         "  Note: the paper measured what is taught, with activations and buffers beside the state. Exact is 32 GB "
         "over the bytes\n  of model state per parameter; model parallelism over 16 ranks multiplies it.\n\n";
}

std::string volume_table(TaughtZero const& lecture) {
  std::string text = fmt::format("4. Elements that a rank sends per step, N = {}, Psi = {} (7.5 B, padded)\n",
                                 lecture.ranks, lecture.padded_parameters);
  text += fmt::format("  {:<26} {:>6} {:<14} {:>14} {:>14} {:>7}  {}\n", "method", "taught", "exact", "elements",
                      "counted", "ratio", "reduced every micro-batch");
  auto const once = static_cast<double>(lecture.volumes.front().exact);
  for (ZeroVolumeRow const& row : lecture.volumes)
    text += fmt::format("  {:<26} {:>6} {:<14} {:>14} {:>14} {:>7.2f}  {}\n", row.method, or_dash(row.taught),
                        row.formula, row.exact, row.counted, static_cast<double>(row.exact) / once, row.formula_each);
  return text + "  Note: an all-reduce is a reduce-scatter and an all-gather. Stage 1 needs the reduce-scatter of "
                "gradients and an all-gather of\n  parameters: the same volume. Two decks draw stage 1 with an "
                "AllReduce and give no figure: exact it is 1.5, and so it is for\n  stage 2. Another one draws the "
                "same pictures with a reduce-scatter (1), and one calls both the same collectives. One deck lets\n  "
                "stage 1 \"send the optimizer states\" and \"update the gradient using optimizer states\": gradients "
                "are sent, parameters are\n  updated. It also says \"AllReduce\" where stage 2 has a reduce-scatter "
                "and stage 3 an all-gather. Stage 3 gathers parameters for\n  forward and for backward. Ratios hold "
                "for gradients that are reduced once (G = 1 micro-batch per rank); for more, the last\n  column.\n\n";
}

std::string gathers_table(TaughtGathers const& gathers, std::int64_t ranks, std::string const& machine) {
  constexpr double mega = 1e6, milli = 1e-3;
  std::string text =
      fmt::format("5. Stage 3 by broadcast or by all-gather: all parameters of {} ({:.1f} M) twice per step, "
                  "16 bits, N = {}; figures are not taught\n",
                  gathers.model, static_cast<double>(gathers.parameters) / mega, ranks);
  constexpr auto line = "  {:<32} {:>10} {:>8} {:>9} {:>11} {:>11} {:>10} {:>10} {:>9}\n";
  text += fmt::format(line, "method", "busiest", "balance", "messages", "all, exact", "counted", "alpha = 0",
                      "simulated", "owned");
  text += fmt::format(line, "", "10^6", "max/mean", "of a rank", "10^6", "10^6", "ms", "ms", "max/mean");
  auto const millions = [](std::int64_t elements) {
    return fmt::format("{:.1f}", static_cast<double>(elements) / mega);
  };
  for (GatherRow const& row : gathers.rows)
    text += fmt::format(line, row.method, millions(row.busiest), fmt::format("{:.2f}", row.balance), row.messages,
                        row.exact_total ? millions(*row.exact_total) : "-", millions(row.counted_total),
                        fmt::format("{:.3f}", row.without_start / milli), fmt::format("{:.3f}", row.priced / milli),
                        fmt::format("{:.2f}", row.memory_balance));
  return text +
         fmt::format(
             "  machine: {}\n"
             "  Note: \"Replacing broadcast by allgather (why?)\": some slides call stage 3's exchange broadcast, "
             "one deck first broadcast and\n  then all-gather. All send the same sum (a scatter comes on top), but "
             "with broadcasts every group has one owner: the rank\n  that owns most has {:.1f} M parameters, the "
             "mean is {:.1f} M, and while one group is sent its owner's port is busy with all\n  of it. With "
             "all-gathers every rank owns and sends the same. Groups are gathered one after the other.\n",
             machine, static_cast<double>(gathers.most_owned) / mega,
             static_cast<double>(gathers.parameters) / mega / static_cast<double>(ranks));
}

std::string units_table(TaughtUnits const& units, std::int64_t ranks, std::string const& machine) {
  constexpr double mega = 1e6, milli = 1e-3;
  std::string text = fmt::format("\n6. Stage 3 with units of several blocks (parallel.unit): {}, {} blocks, 16 bits, "
                                 "N = {}, a micro-batch; not taught\n",
                                 units.model, units.layers, ranks);
  constexpr auto line = "  {:<8} {:>9} {:>9} {:>10} {:>12} {:>12} {:>12} {:>12} {:>12}\n";
  text +=
      fmt::format(line, "unit", "gathers", "gathers", "messages", "largest", "slots", "fresh", "start-up", "gathers");
  text += fmt::format(line, "blocks", "exact", "counted", "of a rank", "message, MB", "MB", "grads., MB", "ms", "ms");
  auto const millions = [](std::uint64_t bytes) { return fmt::format("{:.1f}", static_cast<double>(bytes) / mega); };
  for (UnitRow const& row : units.rows)
    text += fmt::format(line, row.blocks, row.exact_gathers, row.gathers, row.messages, millions(row.largest_message),
                        millions(row.slot_bytes), millions(row.fresh_bytes), fmt::format("{:.3f}", row.start / milli),
                        fmt::format("{:.3f}", row.seconds / milli));
  return text +
         fmt::format(
             "  machine: {}\n"
             "  Note: a unit is gathered and reduced together; gathers are 2 (ceil(L/k) + 1) for k blocks: of every "
             "unit and of root,\n  forward and backward. All rows send the same bytes. Slots are 2 of the largest unit "
             "(one is gathered ahead), fresh gradients\n  up to 2 units of blocks and root's, in buckets of a "
             "unit. Gathers are rings, one after the other.\n",
             machine);
}

} // namespace

std::string lecture_zero_text(TaughtZero const& lecture, std::string const& machine) {
  std::string const text =
      memory_table(lecture) + ratio_table(lecture) + largest_table(lecture) + volume_table(lecture);
  if (lecture.gathers)
    return text + gathers_table(*lecture.gathers, lecture.ranks, machine) +
           units_table(*lecture.units, lecture.ranks, machine);
  return text + fmt::format("Tables 5, stage 3 by broadcast or by all-gather, and 6, with units of several blocks, are "
                            "left out:\nall of their messages are simulated, which goes up to {} ranks.\n",
                            most_gather_ranks);
}

} // namespace trainstone
