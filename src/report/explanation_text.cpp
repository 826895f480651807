#include "report/explanation_text.hpp"

#include "comm/schedule/schedule_text.hpp"
#include "core/aligned.hpp"
#include "core/plural.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace trainstone {

namespace {

constexpr std::size_t many_ranks = 6; // are written in runs

/// "0+1+5", of many "0..4+7"
std::string ranks_text(std::vector<Rank> const& ranks) {
  if (ranks.size() <= many_ranks) return fmt::format("{}", fmt::join(ranks, "+"));
  std::vector<std::string> runs;
  for (std::size_t first = 0; first < ranks.size();) {
    std::size_t last = first;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (last - first < 2) last = first; // two in a row are no run
    runs.push_back(first == last ? std::to_string(ranks[first]) : fmt::format("{}..{}", ranks[first], ranks[last]));
    first = last + 1;
  }
  return fmt::format("{}", fmt::join(runs, "+"));
}

/// For whom a rank's message with this element is.
Rank addressee(Problem const& problem, Rank from, Index element) {
  Rank to = 0;
  while (to + 1 < problem.ranks() && element >= all_to_all_range(problem.partition, from, to).end) ++to;
  return to;
}

std::string content_text(Explanation const& explanation, Content const& content) {
  if (content.ranks.empty()) return "-";
  if (explanation.problem.collective == Collective::all_to_all)
    return fmt::format("{}>{}", content.ranks[0], addressee(explanation.problem, content.ranks[0], content.element));
  Rank const contributors = explanation.contributors();
  if (contributors > 1 && std::ssize(content.ranks) == contributors) return "all";
  return ranks_text(content.ranks);
}

std::string extent(Explanation const& explanation, std::size_t place) {
  Collective const collective = explanation.problem.collective;
  if (collective == Collective::all_to_all || !has_data(collective)) return "";
  Range const range = explanation.places[0][place];
  return fmt::format("[{}, {})", range.begin, range.end);
}

std::string state_table(Explanation const& explanation, std::size_t number) {
  ExplainedRound const& round = explanation.rounds[number];
  std::vector<std::vector<std::string>> rows{{""}, {""}};
  std::vector<std::size_t> const shown = shown_places(explanation);
  for (std::size_t const place : shown) {
    rows[0].push_back(place_name(explanation, place));
    rows[1].push_back(extent(explanation, place));
  }
  if (std::ranges::all_of(rows[1], &std::string::empty)) rows.pop_back();
  for (std::size_t rank = 0; rank < round.held.size(); ++rank) {
    rows.push_back({rank_name(explanation, static_cast<Rank>(rank))});
    for (std::size_t const place : shown) {
      Contents const& contents = round.held[rank][place];
      bool const changed = number > 0 && contents != explanation.rounds[number - 1].held[rank][place];
      rows.back().push_back(cell_text(explanation, contents) + (changed ? "*" : ""));
    }
  }
  return aligned(rows);
}

std::string message_line(Explanation const& explanation, ExplainedMessage const& message) {
  std::string line = fmt::format("    rank {} -> rank {}", message.from, message.to);
  if (!message.source.range.empty())
    line += fmt::format(": {} to {}, holding {}", describe(message.source), describe(message.target),
                        cell_text(explanation, message.contents));
  return line + "\n";
}

std::string events(Explanation const& explanation, std::size_t number) {
  ExplainedRound const& round = explanation.rounds[number];
  std::string text;
  if (!round.messages.empty()) text += "  messages\n";
  for (ExplainedMessage const& message : round.messages) text += message_line(explanation, message);
  if (!round.moves.empty()) text += "  in memory\n";
  for (ExplainedMove const& move : round.moves) {
    std::vector<Rank> const& neighbours = explanation.problem.topology.neighbours(move.rank);
    if (move.move.action != Action::node_barrier)
      text += fmt::format("    rank {}: {}\n", move.rank, describe(move.move));
    else if (move.rank == neighbours.front()) // one line per node
      text +=
          fmt::format("    rank{} {}: node barrier\n", neighbours.size() > 1 ? "s" : "", fmt::join(neighbours, ", "));
  }
  return text;
}

} // namespace

std::string explanation_title(Explanation const& explanation) {
  Problem const& problem = explanation.problem;
  std::string title = fmt::format("{} {} on {}, {}", to_string(problem.collective), to_string(explanation.algorithm),
                                  plural(problem.ranks(), "rank"), plural(problem.topology.nodes(), "node"));
  if (has_data(problem.collective)) title += ", " + plural(problem.elements(), "element");
  if (problem.servers > 0) title += fmt::format(", the last {} of the ranks serving", problem.servers);
  return title + (problem.shared_memory ? ", buffers in shared memory" : "");
}

std::string meaning_of(Problem const& problem) {
  switch (problem.collective) {
  case Collective::all_reduce: return "Every rank holds data; all end with the sum over ranks.";
  case Collective::reduce_scatter: return "Every rank holds data; rank r ends with block r of the sum.";
  case Collective::all_gather: return "Rank r holds block r; all end with all blocks.";
  case Collective::broadcast: return fmt::format("Rank {} holds data; all end with it.", problem.root);
  case Collective::reduce: return fmt::format("Every rank holds data; rank {} ends with the sum.", problem.root);
  case Collective::gather: return fmt::format("Rank r holds block r; rank {} ends with all blocks.", problem.root);
  case Collective::scatter: return fmt::format("Rank {} holds data; rank r ends with block r.", problem.root);
  case Collective::all_to_all:
    return "Every rank holds a message for every rank; it ends with every rank's message for it.";
  case Collective::barrier: return "No rank ends before all have started.";
  case Collective::server_push: return "Workers hold data; server s ends with block s of the sum over workers.";
  case Collective::server_pull: return "Server s holds block s; workers end with all blocks.";
  case Collective::send_receive:
    return fmt::format(
        "Every rank sends its first half; rank r ends with that of rank (r + {}) mod {} in its second half.",
        problem.distance, problem.ranks());
  case Collective::send:
    return fmt::format("Rank {} holds data; rank {} ends with it.", problem.root, problem.destination_of(problem.root));
  case Collective::copy: return "Every rank copies its first half to its second half.";
  case Collective::signal_wait:
    return fmt::format("Rank r does not end before rank (r + {}) mod {} has started.", problem.distance,
                       problem.ranks());
  }
  return "";
}

std::string rank_name(Explanation const& explanation, Rank rank) {
  Problem const& problem = explanation.problem;
  std::string name = fmt::format("rank {}", rank);
  if (problem.servers > 0 && rank >= problem.workers()) name += fmt::format(", server {}", rank - problem.workers());
  return problem.topology.nodes() > 1 ? fmt::format("{}, node {}", name, problem.topology.node_of(rank)) : name;
}

std::string place_name(Explanation const& explanation, std::size_t place) {
  Problem const& problem = explanation.problem;
  if (!has_data(problem.collective)) return "has heard of";
  if (problem.collective == Collective::all_to_all) return fmt::format("message {}", place);
  if (has_halves(problem.collective)) return place == 0 ? "sent" : "received";
  return fmt::format("block {}", static_cast<Rank>(place) - (problem.servers > 0 ? problem.workers() : 0));
}

std::vector<std::size_t> shown_places(Explanation const& explanation) {
  std::vector<std::size_t> shown;
  for (std::size_t place = 0; place < explanation.places[0].size(); ++place) {
    bool const signals = !has_data(explanation.problem.collective);
    bool const filled =
        std::ranges::any_of(explanation.places, [&](auto const& of_rank) { return !of_rank[place].empty(); });
    if (signals || filled) shown.push_back(place);
  }
  return shown;
}

std::string cell_text(Explanation const& explanation, Contents const& contents) {
  std::vector<std::string> texts;
  for (Content const& content : contents) {
    std::string text = content_text(explanation, content);
    if (texts.empty() || texts.back() != text) texts.push_back(std::move(text));
  }
  return fmt::format("{}", fmt::join(texts, "|"));
}

std::string counts_text(Explanation const& explanation) {
  CollectiveCounts const& counts = explanation.counts;
  auto const sent = [](Traffic const& traffic) {
    std::string text = fmt::format("{}, {} sent, {} added", plural(static_cast<Index>(traffic.messages), "message"),
                                   plural(static_cast<Index>(traffic.bytes), "element"), traffic.reduced);
    if (traffic.inter_messages > 0)
      text += fmt::format(", of which {} with {} between nodes",
                          plural(static_cast<Index>(traffic.inter_messages), "message"),
                          plural(static_cast<Index>(traffic.inter_bytes), "element"));
    if (traffic.shared_bytes > 0)
      text += fmt::format(", {} read and written in shared memory",
                          plural(static_cast<Index>(traffic.shared_bytes), "element"));
    return text;
  };
  std::string text = fmt::format("longest chain of messages: {}\n", counts.rounds);
  if (counts.barriers > 0) text += fmt::format("node barriers: {}\n", counts.barriers);
  return text + fmt::format("busiest rank: {}\nall ranks: {}\n", sent(counts.busiest), sent(counts.total));
}

std::string explanation_text(Explanation const& explanation) {
  std::string text = explanation_title(explanation) + "\n" + meaning_of(explanation.problem) + "\n";
  if (explanation.problem.collective == Collective::all_to_all)
    text += "\nA cell names what lies there: \"2>0\" is rank 2's message for rank 0, \"-\" nothing; * is new.\n";
  else if (has_data(explanation.problem.collective))
    text +=
        "\nA cell names the ranks whose contributions are added up there: \"-\" nothing, \"|\" in parts of the block; "
        "* is new.\n";
  for (std::size_t number = 0; number < explanation.rounds.size(); ++number) {
    text += number == 0 ? "\nstart\n" : fmt::format("\nafter round {}\n", number);
    text += state_table(explanation, number) + events(explanation, number);
  }
  return text + "\n" + counts_text(explanation);
}

} // namespace trainstone
