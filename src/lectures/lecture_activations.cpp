#include "lectures/lecture_activations.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace trainstone {

namespace {

constexpr double megabyte = 1e6, terabyte = 1e12;

std::string or_dash(std::string const& text) { return text.empty() ? "-" : text; }

/// "34 sbh + 5 abss", "2 sbh", "-"
std::string formula(TaughtBytes const& bytes) {
  std::string text = bytes.sbh > 0 ? fmt::format("{} sbh", bytes.sbh) : "";
  if (bytes.abss > 0) text += fmt::format("{}{} abss", text.empty() ? "" : " + ", bytes.abss);
  return or_dash(text);
}

std::string tensors_table(TaughtActivations const& lecture, GptConfig const& gpt3) {
  constexpr auto line = "  {:<34} {:<16} {:>10}  {:>10}   {}\n";
  std::string text = "1. What a block of gpt3-175b keeps of one sequence, in 16 bits, with dropout: s = 2048, "
                     "h = 12288, a = 96\n";
  text += fmt::format(line, "", "as taught", "as taught", "kept here", "of this program's");
  text += fmt::format(line, "what", "", "MB", "MB", "activation plan");
  auto const total = lecture.totals.begin();
  std::size_t next = 0;
  for (std::size_t i = 0; i < lecture.tensors.size(); ++i) {
    KeptTensorRow const& row = lecture.tensors[i];
    text +=
        fmt::format(line, row.kind, formula(row.taught), fmt::format("{:.2f}", row.taught.of_sample(gpt3) / megabyte),
                    fmt::format("{:.2f}", row.kept / megabyte), or_dash(row.tensors));
    if (i + 1 < total[static_cast<std::ptrdiff_t>(next)].rows) continue;
    RunningTotal const& sum = lecture.totals[next++];
    text += fmt::format(line, fmt::format("  in total, \"{}\"", sum.printed), formula(sum.taught),
                        fmt::format("{:.2f}", sum.taught.of_sample(gpt3) / megabyte),
                        fmt::format("{:.2f}", sum.kept / megabyte), "");
  }
  double const all = lecture.totals.back().taught.of_sample(gpt3);
  double const scores = TaughtBytes{0, lecture.totals.back().taught.abss}.of_sample(gpt3);
  return text +
         fmt::format(
             "  Note: a number has 2 bytes, an element of a mask 1. The a is missing in one sum of the slides, \"5bss "
             "+ 8sbh\". The scores,\n  5 abss, are {:.0f} % of the block. This program keeps no result of attention's "
             "dropout, which is 2 abss less, and statistics\n  in fp32, 16 bytes per token, which the slides leave "
             "out. With dropout_masks = \"recomputed\" it keeps no masks, either.\n\n",
             100 * scores / all);
}

std::string ways_table(TaughtActivations const& lecture) {
  constexpr auto line = "  {:<27} {:<26} {:>7} {:>7} {:>7}  {:<25} {:>7} {:>7} {:>7}\n";
  std::string text =
      "2. Activations of gpt3-175b, 96 blocks: b s = 3.2 M tokens, of one block and of all, and one sample\n";
  text += fmt::format(line, "", "as taught; *: of a paper", "a block", "all", "sample", "kept here", "a block", "all",
                      "sample");
  text += fmt::format(line, "way", "", "TB", "TB", "GB", "", "TB", "TB", "GB");
  auto const figure = [](std::optional<KeptBytes> const& bytes, double KeptBytes::* which, double unit) {
    return bytes ? fmt::format("{:.4g}", (*bytes).*which / unit) : "-";
  };
  for (KeptRow const& row : lecture.ways)
    text +=
        fmt::format(line, row.way + (row.of_paper ? " *" : ""), or_dash(row.taught_formula),
                    figure(row.taught, &KeptBytes::block, terabyte), figure(row.taught, &KeptBytes::batch, terabyte),
                    figure(row.taught, &KeptBytes::sample, gigabyte), or_dash(row.formula),
                    figure(row.kept, &KeptBytes::block, terabyte), figure(row.kept, &KeptBytes::batch, terabyte),
                    figure(row.kept, &KeptBytes::sample, gigabyte));
  double batch = 0;
  for (KeptRow const& row : lecture.ways)
    if (row.taught) batch = std::max(batch, row.taught->batch);
  return text +
         fmt::format(
             "  Note: the slides ask for this size and leave it to the reader; the figures are the formulas'. All that "
             "is "
             "taught to be kept is {:.0f}\n  times the state of {:.1f} TB. It is not kept at once: ranks share the "
             "batch, "
             "and a rank keeps what its micro-batch has. The formulas\n  leave out what is outside of the blocks, "
             "embedding, logits and gradients that are passed on; `estimate DECK` has it. Rows of\n  recomputation "
             "are this program's plan with memory.recompute. Selective recomputation drops the scores and "
             "their masks;\n  flash attention keeps none, so there is nothing to drop. Full recomputation keeps a "
             "block's output, which is the next one's\n  input, and needs what one block keeps once more while it is "
             "computed again: the taught 2 sbh leaves that out (table 3).\n  * is "
             "of the paper on sequence parallelism, not of the slides; here the masks of these rows are recomputed. "
             "\"-\" is not taught.\n\n",
             batch / lecture.state, lecture.state / terabyte);
}

std::string models_table(TaughtActivations const& lecture) {
  constexpr auto line = "  {:<12} {:>5} {:>9}  {:>9} {:>9} {:>9}  {:>9} {:>9} {:>9} {:>9} {:>9}\n";
  std::string text = "3. One sequence of named models, all blocks, 16 bits, GB\n";
  text += fmt::format(line, "", "", "state", "as taught", "", "", "kept here", "", "", "", "and once");
  text += fmt::format(line, "model", "s", "16 B", "all", "selective", "full", "all", "flash", "selective", "full",
                      "a block");
  auto const figure = [](double bytes) { return fmt::format("{:.4g}", bytes / gigabyte); };
  for (KeptOfModelRow const& row : lecture.models)
    text += fmt::format(line, row.name, row.context, figure(row.state), figure(row.taught),
                        figure(row.taught_selective), figure(row.taught_full), figure(row.kept), figure(row.kept_flash),
                        figure(row.kept_selective), figure(row.kept_full), figure(row.block_again));
  return text + "  Note: kept here with masks that are computed again, for micro-batches of one sequence of s tokens; "
                "more sequences are so\n  many times as much. A block once more is what full recomputation works on; "
                "selective recomputation has its scores once.\n\n";
}

std::string recomputation_table(TaughtActivations const& lecture) {
  constexpr auto line = "  {:<12} {:>11} {:>11}  {:>12} {:>12} {:>12}  {:>11}  {:>12} {:>12}\n";
  std::string text = "4. What recomputation adds to the operations of forward and backward, %\n";
  text += fmt::format(line, "", "full:", "", "exact", "", "", "selective:", "exact", "");
  text += fmt::format(line, "", "as taught", "one forward", "of a block's", "with its", "of the", "other texts",
                      "of a block", "of the");
  text += fmt::format(line, "model", "", "of three", "products", "attention", "whole step", "", "", "whole step");
  auto const percent = [](double share) { return fmt::format("{:.2f}", 100 * share); };
  for (RecomputationRow const& row : lecture.recomputation)
    text += fmt::format(line, row.name, slides_full_recomputation, percent(taught_full_recomputation),
                        percent(row.full_products), percent(row.full_block), percent(row.full_step),
                        taught_selective_recomputation, percent(row.selective_block), percent(row.selective_step));
  return text +
         "  Note: \"doing forward propagation once again\" is one forward more to the three of a step, whose backward "
         "is two. Exact is less:\n  of a block's products, 24 n h^2 forward and 48 n h^2 backward for n tokens, full "
         "recomputation repeats 16 n h^2, because nobody\n  reads the last product's result again, and the head has "
         "no second forward. Selective recomputation repeats the scores, half of\n  attention's forward, which is "
         "causal here; the slides say \"slightly\", 2-5 % is of other texts. Operations are no\n  "
         "times: the slides' 30%~40% is of time, in which softmax, dropout and norms take part.\n";
}

} // namespace

std::string lecture_activations_text(TaughtActivations const& lecture) {
  GptConfig const gpt3 = *find_preset(activations_model);
  return tensors_table(lecture, gpt3) + ways_table(lecture) + models_table(lecture) + recomputation_table(lecture);
}

} // namespace trainstone
