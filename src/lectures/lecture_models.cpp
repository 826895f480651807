#include "lectures/lecture_models.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace trainstone {

namespace {

/// "+0.2 %", without a sign where nothing but zeros would follow it.
std::string signed_percent(double share) {
  std::string const text = fmt::format("{:+.1f} %", 100 * share);
  return text.substr(1) == "0.0 %" ? text.substr(1) : text;
}

std::string sizes_table(TaughtModels const& lecture) {
  constexpr auto line = "  {:<12} {:>6} {:>6} {:>8} {:>16} {:>8}  {:>12} {:>12}\n";
  std::string text = "1. Parameters, and computation relative to bert-large\n";
  text += fmt::format(line, "model", "layers", "hidden", "nominal", "exact", "off by", "computation", "computation");
  text += fmt::format(line, "", "", "", "10^9", "", "", "as taught", "exact");
  for (ModelRow const& row : lecture.models) {
    auto const exact = static_cast<double>(row.computed);
    std::string const taught = row.taught ? fmt::format("{}x", row.taught->computation) : "-";
    text += fmt::format(line, row.name, row.layers, row.channels, row.nominal / 1e9, row.computed,
                        signed_percent(row.nominal / exact - 1), taught, fmt::format("{:.4g}", row.exact_computation));
  }
  return text +
         "  Note: layers, hidden dimension and nominal size are taught of the models that have a taught computation. "
         "Exact is\n  V h + s h + L (12 h^2 + 13 h) + 2 h of each shape (BERT's own has 0.3 % more: segments, pooler). "
         "As taught, computation\n  follows the parameters; exact is FLOP per token at full context, 3 x (2 (12 L h^2 "
         "+ "
         "V h) + 4 L s h), which attention\n  makes more, and the position table and biases less. One slide says "
         "\"Turning NLR 17.2B\" and means turing-nlg.\n\n";
}

std::string memory_table(TaughtModels const& lecture) {
  std::string text =
      "2. Model state on one card, and the cards that hold it: V100 of 16 and 32 GB, A100 of 40 and 80 GB\n";
  text +=
      fmt::format("  {:<12} {:>9} {:<12} {:>10} {:>10} {:<12} {:>10}\n", "", "as taught", "", "exact", "", "", "exact");
  text += fmt::format("  {:<12} {:>9} {:<12} {:>10} {:>10} {:<12} {:>10} {:>10}   {}\n", "model", "", "  fits on",
                      "16 B, GB", "GiB", "  fits on", "20 B, GB", "GiB", "fits on");
  std::string differences;
  for (ModelRow const& row : lecture.models) {
    auto const exact_16 = static_cast<double>(row.exact_bytes_16), exact_20 = static_cast<double>(row.exact_bytes_20);
    std::string const taught = row.taught ? fmt::format("{}GB", row.taught->gigabytes) : "-";
    std::string const verdict = row.taught ? cards_text(row.taught->gigabytes * gigabyte, gigabyte) : "-";
    text += fmt::format("  {:<12} {:>9}   {:<11}{:>10.2f} {:>10.2f}   {:<11}{:>10.2f} {:>10.2f}   {}\n", row.name,
                        taught, verdict, exact_16 / gigabyte, exact_16 / gibibyte, cards_text(exact_16, gigabyte),
                        exact_20 / gigabyte, exact_20 / gibibyte, cards_text(exact_20, gigabyte));
    for (auto const& [bytes, state] : {std::pair{exact_16, 16}, std::pair{exact_20, 20}})
      if (cards_that_hold(bytes, gigabyte) != cards_that_hold(bytes, gibibyte))
        differences += fmt::format("  {} at {} bytes fits on {} if cards are counted in GiB.\n", row.name, state,
                                   cards_text(bytes, gibibyte));
  }
  return text + differences +
         "  Note: 16 bytes per parameter are mixed16's, 20 mixed20's with an fp32 copy of the gradient: 1 B parameters "
         "are 16 or\n  20 GB on every GPU of plain data parallelism. One deck counts with 16 and 20 bytes: "
         "5.12 GB for 0.32 B, and\n  20 GB for 1 B. Activations and buffers come on top: "
         "`estimate DECK` with model.preset has them.\n\n";
}

std::string states_table(TaughtModels const& lecture) {
  std::string text = "3. The state of gpt3-175b, mixed16\n";
  text +=
      fmt::format("  {:<22} {:>8} {:>14} {:>12} {:>12}\n", "kind", "bytes", "as taught, GB", "exact, GB", "exact, GiB");
  auto const line = [](std::string const& kind, int bytes, double taught, std::int64_t exact) {
    return fmt::format("  {:<22} {:>8} {:>14.0f} {:>12.2f} {:>12.2f}\n", kind, bytes, taught / gigabyte,
                       static_cast<double>(exact) / gigabyte, static_cast<double>(exact) / gibibyte);
  };
  StateRow sum{"sum", 0, 0, 0};
  for (StateRow const& row : lecture.states) {
    text += line(row.kind, row.bytes_per_parameter, row.taught, row.exact);
    sum.bytes_per_parameter += row.bytes_per_parameter;
    sum.taught += row.taught;
    sum.exact += row.exact;
  }
  return text + line(sum.kind, sum.bytes_per_parameter, sum.taught, sum.exact) +
         "  Note: 175 B are nominal. An fp32 copy of the gradient (mixed20) adds another master copy's bytes.\n\n";
}

std::string activations_table(TaughtModels const& lecture) {
  std::string text =
      "4. Activations of gpt3-175b in 16 bits, with dropout: b sequences of s = 2048, h = 12288, a = 96\n";
  text += fmt::format("  {:<32} {:>16} {:>22}\n", "what is kept", "b = 1, GB", "b s = 3.2 M tokens, TB");
  for (ActivationRow const& row : lecture.activations)
    text +=
        fmt::format("  {:<32} {:>16.4g} {:>22.4g}\n", row.kind, row.sample / gigabyte, row.batch / (1000 * gigabyte));
  return text +
         "  Note: one slide fills a card with the state, \"Activations (depending on batch size)\" and \"Buffer and "
         "Fragmentation\",\n  without figures for these. This program's rows are its activation plan: it keeps no "
         "output of "
         "attention's dropout, which is\n  2 abss less, and adds statistics in fp32. Outside of the blocks are "
         "embedding, logits and the gradients that are passed on;\n  buffers of messages depend on the strategy "
         "(`estimate DECK`). Arenas are planned, so that nothing is lost to\n  fragmentation. One slide of the same "
         "deck has 5bss + 8sbh where the others have 5 abss.\n";
}

} // namespace

std::string cards_text(double bytes, double unit) {
  std::vector<int> const cards = cards_that_hold(bytes, unit);
  return cards.empty() ? "none" : fmt::format("{}", fmt::join(cards, " "));
}

std::string lecture_models_text(TaughtModels const& lecture) {
  return sizes_table(lecture) + memory_table(lecture) + states_table(lecture) + activations_table(lecture);
}

} // namespace trainstone
