#include "report/lecture_zero.hpp"

#include <fmt/format.h>

namespace trainstone {

namespace {

constexpr double giga = 1e9;

std::string or_dash(std::string const& text) { return text.empty() ? "-" : text; }

std::string memory_table(TaughtZero const& lecture) {
  std::string text = "1. Model state per device, GB (10^9 bytes): 7.5 B parameters, recipe mixed16, no padding\n";
  text += fmt::format("  {:<7} {:<18} {:<7}", "stage", "bytes x parameters", "N =");
  for (std::int64_t const ranks : taught_zero_ranks) text += fmt::format(" {:>9}", ranks);
  text += "\n";
  for (ZeroMemoryRow const& row : lecture.memory) {
    text += fmt::format("  {:<7} {:<18} {:<7}", row.stage, "", "taught");
    for (double const gigabytes : row.taught_gigabytes) text += fmt::format(" {:>9}", gigabytes);
    text += fmt::format("\n  {:<7} {:<18} {:<7}", "", row.formula, "exact");
    for (double const bytes : row.bytes) text += fmt::format(" {:>9.3f}", bytes / giga);
    text += "\n";
  }
  return text +
         "  Stage 0 is plain data parallelism; 1 shards the optimizer's state (12 bytes per parameter: master copy "
         "and two\n  moments), 2 the gradients too (2), 3 the parameters too (2).\n"
         "  Note: one slide gives stage 1 as 2 Psi + 14 Psi/N; that is stage 2's formula.\n\n";
}

std::string ratio_table(TaughtZero const& lecture) {
  std::string text = "2. Times less memory than plain data parallelism\n";
  text += fmt::format("  {:<9} {:>8} {:>8} {:>8}  {:>10} {:>10} {:>10}\n", "recipe", "stage 1", "stage 2", "stage 3",
                      "stage 1", "stage 2", "stage 3");
  text += fmt::format("  {:<9} {:>26}  {:>32}\n", "", "as taught", fmt::format("exact, N = {}", lecture.ranks));
  for (ZeroRatioRow const& row : lecture.ratios)
    text +=
        fmt::format("  {:<9} {:>8} {:>8} {:>8}  {:>10.3f} {:>10.3f} {:>10.3f}\n", row.recipe, or_dash(row.taught[0]),
                    or_dash(row.taught[1]), or_dash(row.taught[2]), row.exact[0], row.exact[1], row.exact[2]);
  return text + "  Note: what is taught is the limit of many devices. mixed18 keeps fp32 gradients (2 + 4 + 12 bytes), "
                "mixed20 an\n  fp32 copy of them in the optimizer (2 + 2 + 16), fp32 is 4 + 4 + 8.\n\n";
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
    text += fmt::format("  {:<26} {:>6} {:<14} {:>14} {:>14} {:>7.2f}  {}\n", row.method, row.taught, row.formula,
                        row.exact, row.counted, static_cast<double>(row.exact) / once, row.formula_each);
  return text + "  Note: an all-reduce is a reduce-scatter and an all-gather. Stage 1 needs the reduce-scatter of "
                "gradients and an\n  all-gather of parameters: the same; taught with an all-reduce it is 1.5. Stage 3 "
                "gathers parameters for forward and\n  for backward. Ratios hold for gradients that are reduced once "
                "(G = 1 micro-batch per rank); for more, the last column.\n";
}

} // namespace

std::string lecture_zero_text(TaughtZero const& lecture) {
  return memory_table(lecture) + ratio_table(lecture) + largest_table(lecture) + volume_table(lecture);
}

} // namespace trainstone
