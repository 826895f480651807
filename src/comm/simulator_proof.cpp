// The simulator's proof: first what can be seen in one rank's schedule, then what shows only when all ranks play.

#include "comm/playback.hpp"
#include "comm/simulator.hpp"
#include "comm/symbolic_buffer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

namespace trainstone {

namespace {

using Impl::Piece;
using Impl::Posted;
using Impl::SymbolicBuffer;

std::string text(Slice const& slice) {
  return fmt::format("{} [{}, {})", to_string(slice.buffer), slice.range.begin, slice.range.end);
}

std::string text(Move const& move) {
  if (move.action == Action::send) return fmt::format("send of {} to rank {}", text(move.from), move.peer);
  if (move.action == Action::receive) return fmt::format("receive of {} from rank {}", text(move.to), move.peer);
  return fmt::format("{} of {} into {}", to_string(move.action), text(move.from), text(move.to));
}

Finding finding(Defect defect, Rank rank, std::size_t round, std::string const& what) {
  return {defect, rank, fmt::format("{}: rank {}, round {}: {}", to_string(defect), rank, round, what)};
}

// --- one rank alone --------------------------------------------------------------------------------------

std::optional<Finding> find_inconsistency(std::vector<Schedule> const& schedules) {
  for (std::size_t i = 0; i < schedules.size(); ++i) {
    Schedule const& first = schedules[0];
    Schedule const& schedule = schedules[i];
    auto const rank = static_cast<Rank>(i);
    if (schedule.rank != rank || schedule.ranks != static_cast<Rank>(schedules.size())) {
      return finding(Defect::malformed, rank, 0,
                     fmt::format("this is the schedule of rank {} of {}, it should be that of rank {} of {}",
                                 schedule.rank, schedule.ranks, rank, schedules.size()));
    }
    if (schedule.collective != first.collective || schedule.elements != first.elements) {
      return finding(Defect::malformed, rank, 0,
                     fmt::format("{} on {} elements, but rank 0 has {} on {}", to_string(schedule.collective),
                                 schedule.elements, to_string(first.collective), first.elements));
    }
  }
  return {};
}

bool inside_buffer(Slice const& slice, Schedule const& schedule) {
  Index const size = slice.buffer == BufferId::data ? schedule.elements : schedule.scratch_elements;
  return slice.range.begin >= 0 && slice.range.begin < slice.range.end && slice.range.end <= size;
}

std::optional<Finding> find_malformed_move(Schedule const& schedule) {
  for (std::size_t round = 0; round < schedule.rounds.size(); ++round) {
    for (Move const& move : schedule.rounds[round]) {
      bool const peer_exists = move.peer >= 0 && move.peer < schedule.ranks && move.peer != schedule.rank;
      char const* complaint = nullptr;
      if (move.is_message() && !peer_exists) complaint = "there is no such peer";
      if (move.reads() && !inside_buffer(move.from, schedule)) complaint = "source empty or outside its buffer";
      if (move.writes() && !inside_buffer(move.to, schedule)) complaint = "target empty or outside its buffer";
      if (!move.is_message() && move.from.range.size() != move.to.range.size()) complaint = "lengths differ";
      if (complaint) {
        return finding(Defect::malformed, schedule.rank, round, fmt::format("{}: {}", text(move), complaint));
      }
    }
  }
  return {};
}

/// Messages of a round are under way at the same time; a reduce or copy runs by itself.
bool disturb(Move const& a, Move const& b) {
  bool const a_writes = a.action == Action::receive;
  bool const b_writes = b.action == Action::receive;
  return (a_writes || b_writes) && (a_writes ? a.to : a.from).overlaps(b_writes ? b.to : b.from);
}

std::optional<Finding> find_race(Schedule const& schedule) {
  for (std::size_t i = 0; i < schedule.rounds.size(); ++i) {
    Round const& round = schedule.rounds[i];
    for (auto move = round.begin(); move != round.end(); ++move) {
      if (!move->is_message()) {
        if (move->from.overlaps(move->to)) {
          return finding(Defect::read_while_written, schedule.rank, i, text(*move) + " overlaps itself");
        }
        continue;
      }
      auto const other = std::find_if(std::next(move), round.end(),
                                      [&](Move const& later) { return later.is_message() && disturb(*move, later); });
      if (other != round.end()) {
        return finding(Defect::read_while_written, schedule.rank, i,
                       fmt::format("{} and {} are under way together", text(*move), text(*other)));
      }
    }
  }
  return {};
}

// --- all ranks together ----------------------------------------------------------------------------------

/// Moves contributions where the executor would move numbers, and keeps the first thing that is wrong.
class SymbolicRun {
public:
  explicit SymbolicRun(std::vector<Schedule> const& schedules) {
    for (Schedule const& schedule : schedules) {
      m_ranks.push_back({SymbolicBuffer::contribution_of(schedule.rank, schedule.ranks, schedule.elements),
                         SymbolicBuffer::undefined(schedule.scratch_elements), 0});
    }
  }

  void begin_round(Rank) {}

  void deliver(Posted const& send, Posted const& receive) {
    if (send.move->size() != receive.move->size()) {
      return report(finding(Defect::length_mismatch, receive.rank, receive.round,
                            fmt::format("{} gets the {} from round {} of rank {}", text(*receive.move),
                                        text(*send.move), send.round, send.rank)));
    }
    write(receive.rank, receive.move->to, read(send.rank, send.round, *send.move));
  }

  void end_round(Rank rank, Round const& round) {
    std::size_t const number = m_ranks[static_cast<std::size_t>(rank)].round++;
    for (Move const& move : round) {
      if (move.is_message()) continue;
      std::vector<Piece> const from = read(rank, number, move);
      if (move.action == Action::copy) {
        write(rank, move.to, from);
        continue;
      }
      std::vector<Piece> const total = sum(buffer(rank, move.to).read(move.to.range), from);
      if (!std::ranges::all_of(total, &Piece::defined)) {
        report(finding(Defect::mixed_elements, rank, number, text(move) + " adds up different elements"));
      }
      write(rank, move.to, total);
    }
  }

  std::optional<Finding> const& first_finding() const { return m_finding; }
  SymbolicBuffer const& result(Rank rank) const { return m_ranks[static_cast<std::size_t>(rank)].data; }

private:
  struct State {
    SymbolicBuffer data;
    SymbolicBuffer scratch;
    std::size_t round;
  };

  SymbolicBuffer& buffer(Rank rank, Slice const& slice) {
    State& state = m_ranks[static_cast<std::size_t>(rank)];
    return slice.buffer == BufferId::data ? state.data : state.scratch;
  }

  std::vector<Piece> read(Rank rank, std::size_t round, Move const& move) {
    std::vector<Piece> pieces = buffer(rank, move.from).read(move.from.range);
    if (!std::ranges::all_of(pieces, &Piece::defined)) {
      report(finding(Defect::undefined_read, rank, round, text(move) + " reads what nothing has written"));
    }
    return pieces;
  }

  void write(Rank rank, Slice const& slice, std::vector<Piece> const& pieces) {
    buffer(rank, slice).write(slice.range, pieces);
  }

  void report(Finding const& found) {
    if (!m_finding) m_finding = found;
  }

  std::vector<State> m_ranks;
  std::optional<Finding> m_finding;
};

/// The earliest rounds are nearest to the cause: others may only wait for those that wait.
std::optional<Finding> find_waiting(std::vector<Posted> unmatched) {
  if (unmatched.empty()) return {};
  std::ranges::sort(unmatched, {}, [](Posted const& posted) { return std::pair(posted.round, posted.rank); });
  std::size_t const shown = std::min<std::size_t>(3, unmatched.size());
  std::string lines;
  for (Posted const& posted : std::span(unmatched).first(shown)) {
    lines += fmt::format("{}rank {}, round {}: {}", lines.empty() ? "" : "; ", posted.rank, posted.round,
                         text(*posted.move));
  }
  if (unmatched.size() > shown) lines += fmt::format("; and {} more", unmatched.size() - shown);
  return Finding{Defect::waits_for_ever, unmatched.front().rank,
                 fmt::format("{}: {}", to_string(Defect::waits_for_ever), lines)};
}

/// All-reduce: every element in its place, from every rank once.
std::optional<Finding> find_wrong_result(Rank rank, SymbolicBuffer const& data) {
  auto const wrong = [&](Defect defect, Index element, std::string const& what) {
    return Finding{defect, rank,
                   fmt::format("{}: rank {} ends with element {} {}", to_string(defect), rank, element, what)};
  };
  Index begin = 0;
  for (Piece const& piece : data.pieces()) {
    if (piece.element != begin && piece.size > 0) {
      return wrong(Defect::wrong_element, begin, fmt::format("being element {}", piece.element));
    }
    auto const& contributions = *piece.contributions;
    for (std::size_t source = 0; source < contributions.size() && piece.size > 0; ++source) {
      if (contributions[source] == 1) continue;
      Defect const defect = contributions[source] == 0 ? Defect::missing_contribution : Defect::doubled_contribution;
      return wrong(defect, begin, fmt::format("holding rank {} {} times", source, contributions[source]));
    }
    begin += piece.size;
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
  }
  return "unknown";
}

std::optional<Finding> find_defect(std::vector<Schedule> const& schedules) {
  if (auto found = find_inconsistency(schedules)) return found;
  for (Schedule const& schedule : schedules) {
    if (auto found = find_malformed_move(schedule)) return found;
    if (auto found = find_race(schedule)) return found;
  }
  SymbolicRun run(schedules);
  std::vector<Posted> const unmatched = Impl::Playback(schedules, run).run();
  if (run.first_finding()) return run.first_finding();
  if (auto found = find_waiting(unmatched)) return found;
  for (Schedule const& schedule : schedules) {
    if (auto found = find_wrong_result(schedule.rank, run.result(schedule.rank))) return found;
  }
  return {};
}

} // namespace trainstone
