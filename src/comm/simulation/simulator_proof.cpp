// The simulator's proof: what can be seen without playing, then what shows only when all ranks play.

#include "comm/schedule/expected_results.hpp"
#include "comm/simulation/simulator.hpp"
#include "comm/simulation/simulator_checks.hpp"
#include "comm/simulation/symbolic_run.hpp"
#include "core/error.hpp"

#include "comm/schedule/schedule_text.hpp"

#include <algorithm>
#include <map>
#include <span>
#include <tuple>
#include <utility>

namespace trainstone {

namespace {

using Impl::Expected;
using Impl::Piece;
using Impl::Posted;
using Impl::Sum;
using Impl::SymbolicRun;

/// The earliest rounds are nearest to the cause: others may only wait for those that wait.
std::optional<Finding> find_waiting(std::vector<Posted> waiting) {
  if (waiting.empty()) return {};
  std::ranges::sort(waiting, {}, [](Posted const& posted) { return std::pair(posted.round, posted.rank); });
  std::size_t const shown = std::min<std::size_t>(3, waiting.size());
  std::string lines;
  for (Posted const& posted : std::span(waiting).first(shown)) {
    lines += fmt::format("{}rank {}, round {}: {}", lines.empty() ? "" : "; ", posted.rank, posted.round,
                         describe(*posted.move));
  }
  if (waiting.size() > shown) lines += fmt::format("; and {} more", waiting.size() - shown);
  return Finding{Defect::waits_for_ever, waiting.front().rank,
                 fmt::format("{}: {}", to_string(Defect::waits_for_ever), lines)};
}

/// Compares what ranks end with with what they should.
class ResultCheck {
public:
  ResultCheck(Problem const& problem, SymbolicRun const& run) : m_problem(problem), m_run(run) {}

  std::optional<Finding> find_wrong(Rank rank) {
    for (Expected const& expected : Impl::expected_results(m_problem, rank)) {
      Index position = expected.range.begin;
      for (Piece const& piece : m_run.data(rank).read(expected.range)) {
        if (auto found = find_wrong_piece(rank, position, piece, expected)) return found;
        position += piece.size;
      }
    }
    return {};
  }

private:
  std::optional<Finding> find_wrong_piece(Rank rank, Index position, Piece const& piece, Expected const& expected) {
    auto const wrong = [&](Defect defect, std::string const& what) {
      return Finding{defect, rank,
                     fmt::format("{}: rank {} ends with element {} {}", to_string(defect), rank, position, what)};
    };
    if (!piece.defined()) return wrong(Defect::missing_contribution, "undefined, nothing was written there");
    Index const element = expected.element + position - expected.range.begin;
    if (piece.element != element)
      return wrong(Defect::wrong_element, fmt::format("being element {}, it should be {}", piece.element, element));
    auto const& [defect, what] = verdict(piece.sum, expected);
    return what.empty() ? std::nullopt : std::optional(wrong(defect, what));
  }

  struct Verdict {
    Defect defect;
    std::string what; // empty: right
  };

  /// The same sums are on all ranks: each is looked at once.
  Verdict const& verdict(Sum sum, Expected const& expected) {
    auto const [entry, is_new] = m_verdicts.try_emplace({sum, expected.first, expected.last});
    if (is_new) entry->second = judge(m_run.trees().contributions(sum), expected);
    return entry->second;
  }

  static Verdict judge(std::vector<std::uint64_t> const& contributions, Expected const& expected) {
    for (std::size_t source = 0; source < contributions.size(); ++source) {
      auto const rank = static_cast<Rank>(source);
      std::uint64_t const right = rank >= expected.first && rank < expected.last ? 1 : 0;
      if (contributions[source] == right) continue;
      std::string what = fmt::format("holding rank {} {} times, it should be {}", source, contributions[source], right);
      if (right == 0) return {Defect::foreign_contribution, std::move(what)};
      return {contributions[source] == 0 ? Defect::missing_contribution : Defect::doubled_contribution,
              std::move(what)};
    }
    return {};
  }

  Problem const& m_problem;
  SymbolicRun const& m_run;
  std::map<std::tuple<Sum, Rank, Rank>, Verdict> m_verdicts;
};

/// After a barrier a rank has heard of all, after a signal of the one that it has waited for.
std::optional<Finding> find_unheard(SymbolicRun const& run, Problem const& problem) {
  bool const of_all = problem.collective == Collective::barrier;
  for (Rank rank = 0; rank < problem.ranks(); ++rank) {
    for (Rank other = 0; other < problem.ranks(); ++other) {
      if (run.has_heard(rank, other) || (!of_all && other != problem.source_of(rank))) continue;
      return Finding{Defect::unheard_rank, rank,
                     fmt::format("{}: rank {} leaves the {} without having heard of rank {}",
                                 to_string(Defect::unheard_rank), rank, to_string(problem.collective), other)};
    }
  }
  return {};
}

} // namespace

std::string_view to_string(Defect defect) {
  switch (defect) {
  case Defect::malformed: return "malformed";
  case Defect::read_while_written: return "read while written";
  case Defect::length_mismatch: return "length mismatch";
  case Defect::waits_for_ever: return "waits for ever";
  case Defect::undefined_read: return "undefined read";
  case Defect::mixed_elements: return "mixed elements";
  case Defect::wrong_element: return "wrong element";
  case Defect::missing_contribution: return "missing contribution";
  case Defect::doubled_contribution: return "doubled contribution";
  case Defect::foreign_contribution: return "foreign contribution";
  case Defect::unheard_rank: return "unheard rank";
  }
  return "unknown";
}

std::optional<Finding> find_defect(Problem const& problem, std::vector<Schedule> const& schedules) {
  if (auto found = Impl::find_malformed(problem, schedules)) return found;
  for (Schedule const& schedule : schedules) {
    if (auto found = Impl::find_race_in_round(schedule)) return found;
  }
  if (auto found = Impl::find_race_between_neighbours(problem, schedules)) return found;
  SymbolicRun run(problem, schedules);
  std::vector<Posted> const waiting = Impl::Playback(schedules, run).run();
  if (run.first_finding()) return run.first_finding();
  if (auto found = find_waiting(waiting)) return found;
  if (!has_data(problem.collective)) return find_unheard(run, problem);
  ResultCheck check(problem, run);
  for (Schedule const& schedule : schedules) {
    if (auto found = check.find_wrong(schedule.rank)) return found;
  }
  return {};
}

std::string reduction_tree(Problem const& problem, std::vector<Schedule> const& schedules, Rank rank, Index element) {
  TRAINSTONE_REQUIRE(rank >= 0 && rank < problem.ranks() && element >= 0 && element < problem.elements(),
                     "no element {} on rank {} among {} elements on {} ranks", element, rank, problem.elements(),
                     problem.ranks());
  SymbolicRun run(problem, schedules);
  Impl::Playback(schedules, run).run();
  Piece const piece = run.data(rank).read({element, element + 1}).front();
  TRAINSTONE_REQUIRE(piece.defined(), "element {} of rank {} is undefined at the end", element, rank);
  return run.trees().text(piece.sum);
}

std::string balanced_tree(Rank parts) {
  TRAINSTONE_REQUIRE(parts >= 1, "a sum of {} parts", parts);
  Impl::SumTrees trees(parts);
  std::vector<Impl::Pieces> leaves;
  for (Rank rank = 0; rank < parts; ++rank) leaves.push_back({{1, 0, rank}});
  return trees.text(Impl::balanced_sum(trees, std::move(leaves)).front().sum);
}

} // namespace trainstone
