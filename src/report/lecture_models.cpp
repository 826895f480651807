#include "report/lecture_models.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace trainstone {

namespace {

std::string sizes_table(TaughtModels const& lecture) {
  std::string text = "1. Parameters, and computation relative to bert-large\n";
  text += fmt::format("  {:<12} {:>12} {:>16} {:>8}  {:>12} {:>12}\n", "model", "as taught", "exact", "off by",
                      "computation", "computation");
  text += fmt::format("  {:<12} {:>12} {:>16} {:>8}  {:>12} {:>12}\n", "", "10^9", "", "", "as taught", "exact");
  for (ModelRow const& row : lecture.models) {
    auto const exact = static_cast<double>(row.computed);
    std::string const taught = row.in_lecture ? fmt::format("{:.3g}", row.taught_computation) : "-";
    text += fmt::format("  {:<12} {:>12} {:>16} {:>+6.1f} %  {:>12} {:>12.4g}\n", row.name, row.nominal / 1e9,
                        row.computed, 100 * (row.nominal / exact - 1), taught, row.exact_computation);
  }
  return text +
         "  Note: exact is V h + s h + L (12 h^2 + 13 h) + 2 h of each shape (BERT's own has 0.3 % more: segments, "
         "pooler). As\n  taught, computation follows the parameters; exact is FLOP per token at full context, 3 x (2 "
         "(12 L h^2 + V h) + 4 L s h),\n  which attention makes more, and the position table and biases less.\n\n";
}

std::string memory_table(TaughtModels const& lecture) {
  std::string text = "2. Model state on one card, and the cards of 16, 32, 40 and 80 GB that hold it\n";
  text +=
      fmt::format("  {:<12} {:>9} {:<12} {:>10} {:>10} {:<12} {:>10}\n", "", "as taught", "", "exact", "", "", "exact");
  text += fmt::format("  {:<12} {:>9} {:<12} {:>10} {:>10} {:<12} {:>10} {:>10}   {}\n", "model", "16 B, GB",
                      "  fits on", "16 B, GB", "GiB", "  fits on", "20 B, GB", "GiB", "fits on");
  std::string differences;
  for (ModelRow const& row : lecture.models) {
    auto const exact_16 = static_cast<double>(row.exact_bytes_16), exact_20 = static_cast<double>(row.exact_bytes_20);
    text += fmt::format("  {:<12} {:>9.2f}   {:<11}{:>10.2f} {:>10.2f}   {:<11}{:>10.2f} {:>10.2f}   {}\n", row.name,
                        row.taught_bytes / gigabyte, cards_text(row.taught_bytes, gigabyte), exact_16 / gigabyte,
                        exact_16 / gibibyte, cards_text(exact_16, gigabyte), exact_20 / gigabyte, exact_20 / gibibyte,
                        cards_text(exact_20, gigabyte));
    for (auto const& [bytes, state] : {std::pair{exact_16, 16}, std::pair{exact_20, 20}})
      if (cards_that_hold(bytes, gigabyte) != cards_that_hold(bytes, gibibyte))
        differences += fmt::format("  {} at {} bytes fits on {} if cards are counted in GiB.\n", row.name, state,
                                   cards_text(bytes, gibibyte));
  }
  return text + differences +
         "  Note: 16 bytes per parameter are mixed16's, 20 mixed20's with an fp32 copy of the gradient: 1 B parameters "
         "are 16 or\n  20 GB on every GPU of plain data parallelism. Activations and buffers come on top: `estimate "
         "DECK` with\n  model.preset has them.\n\n";
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
         "  Note: 175 B are nominal. An fp32 copy of the gradient (mixed20) adds another master copy's bytes.\n";
}

} // namespace

std::string cards_text(double bytes, double unit) {
  std::vector<int> const cards = cards_that_hold(bytes, unit);
  return cards.empty() ? "none" : fmt::format("{}", fmt::join(cards, " "));
}

std::string lecture_models_text(TaughtModels const& lecture) {
  return sizes_table(lecture) + memory_table(lecture) + states_table(lecture);
}

} // namespace trainstone
