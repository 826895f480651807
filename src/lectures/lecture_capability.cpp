#include "lectures/lecture_capability.hpp"

#include <fmt/format.h>

namespace trainstone {

namespace {

constexpr double giga = 1e9;

std::string number(std::optional<std::int64_t> const& value) { return value ? fmt::format("{}", *value) : "-"; }

std::string methods_table(TaughtCapability const& lecture) {
  std::string text = "1. Largest model on cards of 32 GB, 10^9 parameters, and largest degree\n";
  constexpr auto line = "  {:<13} {:>9} {:>7}  {:<10} {:<31}  {:>9} {:>7}  {}\n";
  text += fmt::format(line, "", "as taught", "", "as taught", "as taught", "exact", "", "");
  text += fmt::format(line, "method", "10^9", "degree", "efficiency", "usability", "10^9", "degree", "limit");
  for (CapabilityRow const& row : lecture.methods)
    text += fmt::format(line, row.method, row.taught_parameters, row.taught_degree, row.taught_efficiency,
                        row.taught_usability, fmt::format("{:.1f}", row.exact / giga), row.degree, row.limit);
  return text + "  As taught: \"Mixed precision Adam on Cluster of DGX-2 with NVIDIA 32 GB V100 GPUs\". A DGX-2 has "
                "16 GPUs, hence the degree 16\n  of MP. DP is data, MP model (tensor), PP pipeline parallelism; "
                "efficiency is of computing.\n"
                "  Note: what is taught was measured, with activations and buffers. Exact is model state alone "
                "(mixed16, 16 bytes per\n  parameter) of what this program can do, with the batch of gpt3-175b: 3.2 "
                "M tokens = 1562 sequences, one per data rank. The\n  models have its 96 heads and L = 96 layers, "
                "and are so wide that the largest rank is full. Embedding and head may be stages\n  of their own: of "
                "p = L + 2 = 98 stages the first and the last one hold tables alone, so that 96 cards are full of "
                "blocks,\n  and p = 128 stages are not possible. Tensor ranks all hold norms, positions and some "
                "biases. Widths are not rounded to\n  multiples of the heads. One deck calls the micro-batches of "
                "GPipe \"+Data Parallel\": they go through one model, there are no\n  replicas.\n\n";
}

std::string degrees_table(TaughtCapability const& lecture) {
  std::string text = "2. Least degree at which the largest rank's state fits on a card (mixed16): exact, not taught\n";
  text += fmt::format("  {:<12} {:>5} {:>6} {:>7}  {:>8} {:>9} {:>13} {:>7}  {:>8}\n", "", "", "", "ranks t",
                      "32 GB:", "", "", "", "80 GB:");
  text += fmt::format("  {:<12} {:>5} {:>6} {:>7}  {:>8} {:>9} {:>13} {:>7}  {:>8} {:>9} {:>13} {:>7}\n", "model",
                      "heads", "layers", "of node", "tensor", "pipeline", "t x pipeline", "ZeRO-3", "tensor",
                      "pipeline", "t x pipeline", "ZeRO-3");
  for (DegreeRow const& row : lecture.models) {
    text +=
        fmt::format("  {:<12} {:>5} {:>6} {:>7}", row.name, row.config.heads, row.config.layers, row.node_tensor_ranks);
    for (LeastDegrees const& least : row.on_cards) {
      std::string const both = least.both ? fmt::format("{} x {}", row.node_tensor_ranks, *least.both) : "-";
      text +=
          fmt::format("  {:>8} {:>9} {:>13} {:>7}", number(least.tensor), number(least.pipeline), both, least.zero3);
    }
    text += "\n";
  }
  return text + "  Note: - where no legal degree is enough. Tensor ranks must divide the heads. Stages are at most "
                "layers + 2: then the first\n  one has the tables of tokens and positions alone, and the last one the "
                "head. t is the largest number of tensor ranks up to 16\n  that divides the heads, and "
                "\"t x pipeline\" takes so many of them and the fewest stages. Tensor ranks all hold norms,\n  "
                "positions and the biases of sums. ZeRO's ranks are at most the samples of the global batch.\n";
}

} // namespace

std::string lecture_capability_text(TaughtCapability const& lecture) {
  return methods_table(lecture) + degrees_table(lecture);
}

} // namespace trainstone
