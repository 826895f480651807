#include "lectures/lecture_products.hpp"

#include "core/plural.hpp"

#include <fmt/format.h>

namespace trainstone {

namespace {

std::string number(double value) { return fmt::format("{:.0f}", value); }
std::string share(std::optional<double> value) { return value ? fmt::format("{:.3f}", *value) : "-"; }

std::string formulas_table(TaughtProducts const& lecture) {
  std::string text = "1. C (m, n) = A (m, k) B (k, n) on P ranks: what the busiest rank sends, and what a rank keeps: "
                     "exact, not taught\n";
  text += fmt::format("  {:<18} {:<14} {:<34} {}\n", "arrangement", "messages", "elements sent", "elements kept");
  for (TaughtProductRow const& row : lecture.formulas)
    text += fmt::format("  {:<18} {:<14} {:<34} {}\n", row.arrangement, row.messages_formula, row.sent_formula,
                        row.kept_formula);
  return text +
         "  Note: one lecture asks how to divide the matrices (1D or 2D) and how to arrange the GPUs (1D, 2D or 3D), "
         "and has no\n  formulas; as taught: \"1D arrangement of GPUs: Megatron-LM. 3D arrangement of GPUs: AxoNN.\" A "
         "box x, y, z cuts n, k, m: ranks\n  gather A over x and B over z, and add up C over y (Agarwal). 1-D is a box "
         "with one axis. q x q ranks broadcast panels (SUMMA)\n  or shift blocks (Cannon). c layers of them shift q/c "
         "times each (2.5-D). A and B lie on all ranks once, and so does C.\n\n";
}

std::string product_table(TaughtProduct const& product, Rank ranks, char letter) {
  auto const [m, n, k] = product.size;
  std::string text = fmt::format("2{}. {}: m = {}, n = {}, k = {} on {}; not taught\n", letter, product.what, m, n, k,
                                 plural(ranks, "rank"));
  constexpr auto line = "  {:<18} {:>12} {:>9} {:>8} {:>13} {:>13} {:>7} {:>13} {:>13}\n";
  text += fmt::format(line, "", "grid", "messages", "", "sent", "", "/bound", "kept", "");
  text += fmt::format(line, "arrangement", "x y z", "exact", "counted", "exact", "counted", "", "exact", "counted");
  for (TaughtProductRow const& row : product.rows)
    text += fmt::format(line, row.arrangement, to_string(row.grid), number(row.messages), row.counted_messages,
                        number(row.sent), row.counted_sent,
                        product.bound > 0 ? fmt::format("{:.2f}", row.sent / product.bound) : "-", number(row.kept),
                        row.counted_kept);
  text += fmt::format("  lower bound: {:.0f} elements\n", product.bound);
  if (product.asked != product.size)
    text += fmt::format("  {}, {} and {} are rounded up to multiples of {}, so that all blocks are equal\n",
                        product.asked.m, product.asked.n, product.asked.k, ranks);
  return text + "\n";
}

std::string shares_table(TaughtProducts const& lecture) {
  std::string text =
      "3. Sent by the busiest rank in a square product, in units of n^2, each on its best grid: exact, not taught\n";
  constexpr auto line = "  {:>6} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}\n";
  text += fmt::format(line, "ranks", "1-D", "SUMMA", "Cannon", "2.5-D", "3-D", "bound");
  for (TaughtShareRow const& row : lecture.shares)
    text += fmt::format(line, row.ranks, share(row.line), share(row.summa), share(row.cannon), share(row.layers),
                        share(row.box), share(row.bound));
  return text +
         "  Note: on a line each rank sends nearly a whole matrix, however many ranks there are. A cube of ranks meets "
         "the bound.\n  The bound is of products whose ranks begin and end with 1/P of A, B and C (Al Daas et al. "
         "2022). It has three cases: it is\n  met on a line while P <= m/n, and on a rectangle while P <= mn/k^2, with "
         "m "
         ">= n >= k.\n\n";
}

std::string tensor_grids_table(TaughtProducts const& lecture) {
  std::string text =
      "4. A block of a transformer on t = x y tensor ranks: sent by a rank, in units of tokens x channels; not taught\n"
      "   exact: (8(x-1) + 24(y-1)) / (xy); counted: 4 all-reduces over x, 4 over y, as rings\n";
  constexpr auto line = "  {:>5} {:>5} {:>5} {:>9} {:>9}{}\n";
  text += fmt::format(line, "t", "x", "y", "exact", "counted", "");
  for (std::vector<TensorGridRow> const& rows : lecture.tensor_grids)
    for (TensorGridRow const& row : rows)
      text += fmt::format(line, row.x * row.y, row.x, row.y, fmt::format("{:.3f}", row.exact),
                          fmt::format("{:.3f}", row.counted),
                          fmt::format("{}{}", row.y == 1 ? "  Megatron-LM" : "", row.is_best ? "  least" : ""));
  return text + "  Note: y = 1 is the 1D arrangement, in which a product is cut along one axis. AxoNN's third axis, z, "
                "shares weights, as\n  ZeRO's stage 3 does, and sends none of these elements. A second axis pays from "
                "t = 8 on.\n";
}

} // namespace

std::string lecture_products_text(TaughtProducts const& lecture) {
  std::string text = formulas_table(lecture);
  char letter = 'a';
  for (TaughtProduct const& product : lecture.products) text += product_table(product, lecture.ranks, letter++);
  return text + shares_table(lecture) + tensor_grids_table(lecture);
}

} // namespace trainstone
