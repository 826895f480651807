#include "lectures/lecture_pipeline.hpp"

#include "core/plural.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace trainstone {

namespace {

constexpr std::size_t most_drawn_cells = 11; // of a stage and direction, so that lines fit on a screen
constexpr Index most_listed_stages = 6;

std::string micro_batches(Index count) { return count == 1 ? "1 micro-batch" : fmt::format("{} micro-batches", count); }

/// "F0   F1   wait wait "
std::string cells_text(std::vector<Index> const& cells, char letter) {
  std::string text;
  for (Index const micro_batch : cells)
    text += fmt::format("{:<5}", micro_batch == cell_waits ? "wait" : fmt::format("{}{}", letter, micro_batch));
  return text;
}

std::string grid_text(PipelineGrid const& grid, Index stages) {
  std::size_t const cells = grid.forward.front().size();
  if (cells > most_drawn_cells)
    return fmt::format("  {}: {} cells each; `trainstone explain pipeline gpipe --stages {} --micro-batches {} "
                       "--svg FILE` draws them\n",
                       micro_batches(grid.micro_batches), cells, stages, grid.micro_batches);
  std::string text = fmt::format("  {:<18}{:<{}}  backward\n", micro_batches(grid.micro_batches), "forward", 5 * cells);
  for (std::size_t stage = 0; stage < grid.forward.size(); ++stage) {
    std::string const line = fmt::format("    {:<16}{}  {}", fmt::format("stage {}", stage),
                                         cells_text(grid.forward[stage], 'F'), cells_text(grid.backward[stage], 'B'));
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

/// "6 of 9", "-"
std::string of_cells(std::optional<Index> waits, std::optional<Index> cells) {
  return waits && cells ? fmt::format("{} of {}", *waits, *cells) : "-";
}

Index all_cells(PipelineCells const& cells) { return std::ssize(cells) * static_cast<Index>(cells.front().size()); }

std::string cells_tables(TaughtPipeline const& lecture) {
  std::string text =
      fmt::format("1. Cells of {}, drawn as on the slides: all forwards, then all backwards of micro-batches\n",
                  plural(lecture.stages, "stage"));
  for (PipelineGrid const& grid : lecture.grids) text += grid_text(grid, lecture.stages);
  constexpr auto line = "  {:<18} {:>13} {:>15} {:>15} {:>15} {:>9}\n";
  text += fmt::format(line, "cells that wait", "as taught", "exact", "simulated", "simulated", "share");
  text += fmt::format(line, "", "per direction", "per direction", "forward", "backward", "");
  for (PipelineGrid const& grid : lecture.grids) {
    Index const forward = waiting_cells(grid.forward), all = all_cells(grid.forward);
    text += fmt::format(line, micro_batches(grid.micro_batches), of_cells(grid.taught_waits, grid.taught_cells),
                        of_cells(grid.exact_waits, grid.exact_cells), of_cells(forward, all),
                        of_cells(waiting_cells(grid.backward), all_cells(grid.backward)),
                        fmt::format("{:.1f} %", 100 * static_cast<double>(forward) / static_cast<double>(all)));
  }
  return text +
         "  Note: exact is p (p-1) of p (m+p-1) cells for p stages and m micro-batches. With one micro-batch this is "
         "the naive pipeline:\n  \"Only 1 GPU works each moment\". \"Reduce the Percentage of Wait With more "
         "Batches\": the cells that wait stay as many, their\n  share becomes less. The slide of 3 batches leaves out "
         "its middle and shows the 3 waits of filling and the 3 of draining. The\n  slides call the micro-batches "
         "\"+Data Parallel\"; they go through one model, there are no replicas. A backward is drawn as long\n  as a "
         "forward; it takes about twice as long, which changes no share. Backward is drawn here in the order of "
         "this program.\n\n";
}

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

std::string shares_table(TaughtPipeline const& lecture) {
  constexpr auto line = "  {:<14} {:>4} {:>7}  {:<21} {:>9} {:>10}  {:<14} {:>8} {:>10}\n";
  std::string text = fmt::format("2. Waiting on {}, forward : backward = 1 : 2, messages take no time: formulas of "
                                 "papers, not taught\n",
                                 plural(lecture.stages, "stage"));
  text += fmt::format(line, "", "", "", "of all time", "", "", "bubble / ideal", "", "");
  text +=
      fmt::format(line, "schedule", "m", "chunks", "formula", "share", "simulated", "formula", "ratio", "simulated");
  for (PipelineRow const& row : lecture.rows) {
    bool const naive = row.schedule == "naive", cut = row.chunks > 1;
    text += fmt::format(line, row.schedule, row.micro_batches, row.chunks,
                        naive ? "(p-1)/p"
                        : cut ? "(p-1)/(v m + p-1)"
                              : "(p-1)/(m+p-1)",
                        percent(row.share), percent(row.simulated_share),
                        naive ? "p-1"
                        : cut ? "(p-1)/(v m)"
                              : "(p-1)/m",
                        fmt::format("{:.4f}", row.ratio), fmt::format("{:.4f}", row.simulated_ratio));
  }
  return text +
         "  Note: two figures are called the bubble: waiting time as a share of all time, and beside the time of "
         "computing. Formulas are\n  of the papers, the slides print none; there are no 1f1b and no interleaved "
         "schedule on them. naive runs its micro-batches one\n  after the other, so that more of them change "
         "nothing. 1f1b waits as long as gpipe: it keeps less (table 3). interleaved gives a\n  stage v chunks "
         "of the model; it exists where p divides m. Simulated are equal stages; a head or an embedding adds "
         "waiting, which\n  the slides leave out.\n\n";
}

/// "3 2 1", "64 63 62 ... 1"
std::string by_stage(std::vector<Index> const& numbers) {
  std::string text;
  auto const count = std::ssize(numbers);
  for (Index i = 0; i < count; ++i) {
    bool const left_out = count > most_listed_stages && i >= 3 && i + 1 < count;
    if (left_out && i > 3) continue;
    text += (text.empty() ? "" : " ") + (left_out ? "..." : fmt::format("{}", numbers[static_cast<std::size_t>(i)]));
  }
  return text;
}

std::string messages_table(TaughtPipeline const& lecture) {
  constexpr auto line = "  {:<14} {:>4} {:>7}  {:<24} {:<24} {:>8} {:>9}  {:>9} {:>10}\n";
  std::string text = fmt::format("3. What {} keep, and their messages: not taught\n", plural(lecture.stages, "stage"));
  text += fmt::format(line, "", "", "", "in flight by stage", "", "messages", "", "not hidden", "");
  text += fmt::format(line, "schedule", "m", "chunks", "exact", "simulated", "exact", "counted", "exact", "simulated");
  for (PipelineRow const& row : lecture.rows)
    text += fmt::format(line, row.schedule, row.micro_batches, row.chunks, by_stage(row.in_flight),
                        by_stage(row.simulated_in_flight), row.messages, row.counted_messages,
                        row.exposed ? fmt::format("{}", *row.exposed) : "-", row.simulated_exposed);
  return text +
         fmt::format(
             "  Note: in flight are chunks of micro-batches whose activations a stage keeps at most: m with gpipe, "
             "min(m, p-i) on stage i with\n  1f1b, 1 with naive, min(m v, 2 (p-1-i) + (v-1) p + 1) with interleaved. "
             "The slides leave out this memory and the messages. Each\n  micro-batch takes an activation and a "
             "gradient of b s h numbers over each of the p v - 1 borders, 2 m (p v - 1) messages: for\n  gpt3-175b "
             "{:.2f} MB each, one sequence in 16 bits. Not hidden are the times of a message that a step takes longer: "
             "2 (p-1) with\n  gpipe, whatever m is; with 1f1b they grow with m. On top, the first and the last stage "
             "add up their gradients of the token\n  table, once per step; the slides leave this out.\n",
             lecture.message_bytes / 1e6);
}

} // namespace

std::string lecture_pipeline_text(TaughtPipeline const& lecture) {
  return cells_tables(lecture) + shares_table(lecture) + messages_table(lecture);
}

} // namespace trainstone
