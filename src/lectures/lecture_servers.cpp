#include "lectures/lecture_servers.hpp"

#include "core/plural.hpp"

#include <fmt/format.h>

namespace trainstone {

namespace {

std::string counts_table(TaughtServers const& lecture) {
  double const mebi = 1048576;
  constexpr auto line = "  {:>7} {:>10} {:>10} {:>12} {:>10} {:>12} {:>12} {:>12}\n";
  std::string text = fmt::format("1. A step of {} with {:g} MiB of parameters, ports of {:g} GB/s in both directions\n",
                                 plural(lecture.workers, "worker"), lecture.bytes / mebi, lecture.bandwidth * 1e-9);
  text += fmt::format(line, "servers", "a worker", "a server", "all", "all", "time", "push", "push, pull");
  text += fmt::format(line, "K", "sends, MiB", "sends, MiB", "as taught", "exact, MiB", "as taught", "exact", "exact");
  for (ServersRow const& row : lecture.counts)
    text +=
        fmt::format(line, row.servers, fmt::format("{:.2f}", static_cast<double>(row.worker_sent) / mebi),
                    fmt::format("{:.2f}", static_cast<double>(row.server_sent) / mebi),
                    fmt::format("2 N M = {:g}", 2 * lecture.workers * lecture.bytes / mebi),
                    fmt::format("{:.2f}", static_cast<double>(row.all_sent) / mebi),
                    fmt::format("{:.2f} us", row.taught_seconds * 1e6),
                    fmt::format("{:.2f} us", row.push_seconds * 1e6), fmt::format("{:.2f} us", row.step_seconds * 1e6));
  return text +
         "  Note: workers push M bytes of gradients and pull M bytes of parameters; servers have no data. \"Latency: "
         "M N / bandwidth\"\n  counts one direction and one server: both take 2 N M / (K B), as long as the servers' "
         "ports are the slowest. A worker's own port\n  takes M / B in each direction, so that more servers than "
         "workers do not help. Sums and updates take no time here.\n\n";
}

/// "bbb222111"
std::string track(std::vector<LinkSlot> const& slots, std::int64_t end) {
  std::string text(static_cast<std::size_t>(end), '.');
  for (LinkSlot const& slot : slots)
    for (std::int64_t tick = slot.begin; tick < slot.end; ++tick)
      text[static_cast<std::size_t>(tick)] = static_cast<char>('1' + slot.layer);
  return text;
}

std::string timeline_text(char const* name, TransferTimeline const& timeline) {
  std::vector<LinkSlot> compute = timeline.backward;
  compute.insert(compute.end(), timeline.forward.begin(), timeline.forward.end());
  return fmt::format("  {:<26} compute {}   ends at {}\n  {:<26} link    {}\n", name, track(compute, timeline.end),
                     timeline.end, "", track(timeline.link, timeline.end));
}

std::string stragglers_table(TaughtServers const& lecture) {
  constexpr auto line = "  {:<22} {:<14} {:>9} {:>9} {:>9} {:>12} {:>12} {:>9}\n";
  std::string text =
      fmt::format("3. {} that push until as many pushes were applied: \"Mitigating Stragglers\", simulated; "
                  "figures are not taught\n",
                  plural(lecture.racing_workers, "worker"));
  text += fmt::format(line, "", "", "pushes", "closed", "largest", "largest", "bound", "workers");
  text += fmt::format(line, "stragglers", "rule", "per time", "form", "gap", "staleness", "(W-1)(2s+1)", "wait");
  for (StragglersRow const& row : lecture.stragglers)
    text += fmt::format(line, row.stragglers, row.staleness ? fmt::format("s = {}", *row.staleness) : "asynchronous",
                        fmt::format("{:.3f}", row.pushes), row.formula ? fmt::format("{:.3f}", *row.formula) : "-",
                        row.largest_gap, row.largest_staleness,
                        row.staleness_bound ? fmt::format("{}", *row.staleness_bound) : "-",
                        fmt::format("{:.1f} %", 100 * row.waiting_share));
  return text +
         "  Note: a unit of time is what a usual worker needs for one push. s = 0 are rounds: N / longest time. "
         "Asynchronous workers do not\n  wait: the sum of 1 / time of each. With a bound s a worker waits if it is "
         "more "
         "than s pushes ahead of the slowest one. A slow worker\n  that stays slow holds the others to its pace, "
         "whatever s is; random delays are evened out by a small s. Staleness is the number\n  of updates by others "
         "between a worker's pull and the application of what it has computed from it. The slides have the name of\n"
         "  asynchronous training alone: the bound is of the stale synchronous protocol.\n";
}

} // namespace

std::string transfer_orders_text(TaughtServers const& lecture) {
  std::string text =
      "Orders of a worker's layers on its link: each digit is a layer, each column a unit of time, a dot nothing\n"
      "  as taught: computation    backward 3 2 1, then forward 1 2 3\n"
      "  as taught: available      gradients 3 2 1\n"
      "  simulated, on one serial link:\n";
  text += timeline_text("first in, first out", lecture.fifo);
  text += timeline_text("priority, in slices", lecture.priority);
  constexpr auto line = "  {:>6} {:>8} {:>9} {:>9}   {:>19} {:>21} {:>11} {:>6}\n";
  text += fmt::format(line, "layers", "forward", "backward", "transfer", "first in, first out",
                      "priority, whole layers", "in slices", "least");
  for (TransfersRow const& row : lecture.transfers)
    text += fmt::format(line, row.layers, row.times.forward, row.times.backward, row.times.transfer, row.fifo,
                        row.whole_layers, row.slices, row.least);
  return text +
         "  Note: gradients are there from the last layer to the first, and the next forward needs the first layer "
         "first. So the lowest\n  layer that is ready goes first, and slices let it overtake a higher one that is "
         "under way. A forward begins when its own layer\n  is there. Bytes and results stay the same. Least is a "
         "bound that no order beats: max(sum f + sum b, b of the last layer + sum c +\n  its f, sum b + c of the "
         "first layer + sum f). A transfer is the push and the pull of a layer on one serial link.\n\n";
}

std::string lecture_servers_text(TaughtServers const& lecture) {
  return counts_table(lecture) + "2. " + transfer_orders_text(lecture) + stragglers_table(lecture);
}

} // namespace trainstone
